"""The contract between operator and router: names, the identity of a prompt, the routing table.

Beside it stands the parser of all programs' flags. It uses the standard library only.
"""
