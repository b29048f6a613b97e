"""The contract between operator and router: names, the identity of a prompt, the routing table.

It uses the standard library only.
"""
