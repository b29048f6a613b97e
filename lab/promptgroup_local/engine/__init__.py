"""A stand-in LLM engine: vLLM's HTTP API and caching behaviour, with simulated time in place of a model.

Started with the command line of SGLang or TensorRT-LLM it has their flags, paths and metrics over the same cache.

Without I/O: `tokenizer`, `chat`, `answer`, `kvcache`, `scheduler`, `protocol`. With I/O: `flags` (TensorRT-LLM has
settings in a file), `core` (the clock that drives the scheduler), `metrics`, `server`. The shapes follow vLLM 0.32;
only the computation is simulated, so hit rates, queueing and preemption come from the same decisions that a real
engine takes.
"""
