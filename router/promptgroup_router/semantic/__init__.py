"""Counts the questions that a semantic cache would answer, without answering them: it searches for similar questions.

`flights` calls it. All modules but `embedder` and `similar_answers` do no I/O and read no clock.
"""
