"""Embeddings of texts, from an endpoint or from a model on this machine.

It may not import `reach`, `dashboard` or `commands`.
"""
