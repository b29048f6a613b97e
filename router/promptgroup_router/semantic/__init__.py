"""The semantic cache: which earlier question is similar enough that its answer is an answer to this one.

`flights` asks it. All modules but `embedder` and `similar_answers` do no I/O and read no clock.
"""
