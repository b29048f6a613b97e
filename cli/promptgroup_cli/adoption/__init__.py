"""Turns a Deployment of vLLM or SGLang into the manifest of a host: a PromptGroup without a prompt.

One file per family of fields: it decides which of them are kept, and states why the others are not. Does no I/O.
"""
