"""Counts the questions that a semantic cache would answer, without answering them: it searches for similar questions.

The folder is the whole feature: `server` composes it, and it acts at the points of `response_cache/points.py`. All
modules but `embedder` and `similar_answers` do no I/O and read no clock.
"""
