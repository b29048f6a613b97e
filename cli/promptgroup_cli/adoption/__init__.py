"""Turns a Deployment of vLLM or SGLang into the manifest of a host: a PromptGroup without a prompt.

One file per family of fields: it decides which of them remain, and states why the others do not. Does no I/O.
"""
