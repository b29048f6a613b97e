"""Counts the questions that a semantic cache would answer, and answers none: which earlier question is similar.

`flights` asks it. All modules but `embedder` and `similar_answers` do no I/O and read no clock.
"""
