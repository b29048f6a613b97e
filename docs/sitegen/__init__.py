"""Generators of the reference pages: code and CRDs in, Markdown between two marks of a page out.

Imported by `make generate` and by tests only. A page says `<!-- generated: NAME -->` and `<!-- end -->`; what stands
between the two marks is replaced by what the block NAME renders.
"""
