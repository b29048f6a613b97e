"""`promptgroup responses calibrate`: the threshold of a semantic cache, and its proof by a sample of pairs.

`command` has the flags and the work, `endpoint` and `minilm` get embeddings of texts; the others do no I/O and read no
clock. It may not import `dashboard` or `commands`.
"""
