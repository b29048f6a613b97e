"""Turns a Deployment of vLLM or SGLang into the manifest of a host: a PromptGroup without a prompt.

One family of fields a file: each decides what of them is kept, and says why the rest is not. Does no I/O.
"""
