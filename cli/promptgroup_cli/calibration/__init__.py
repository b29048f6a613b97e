"""The threshold of a semantic cache: what a sample of pairs proves of it. Does no I/O and reads no clock."""
