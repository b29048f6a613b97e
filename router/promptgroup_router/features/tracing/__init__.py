"""Traces: the context that a request brings (W3C Trace Context), which requests are recorded, and what is recorded.

Does no I/O and reads no clock; `span_export` beside this folder sends what was recorded to a collector.
"""
