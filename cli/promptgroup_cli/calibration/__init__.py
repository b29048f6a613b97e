"""The threshold of a semantic cache, and its proof by a sample of pairs. Does no I/O and reads no clock."""
