"""Judges each field of a body that a supported engine reads, by name.

`fieldreads` finds them in the sources of vLLM 0.32 and 0.33 and SGLang 0.5.23. A test of real engines fails on a field
that is not here. Those of `EngineField` reach engines only where a group allows them.
"""

from promptgroup_contract.caller_rules import EngineField

REPEATING = "hands out the client's own prompt or what was computed of it: it is refused of a secret one"
_PASSING = {
    "is what the answer follows from": (
        *("model", "messages", "system", "instructions", "input", "prompt", "suffix", "tools", "tool_choice"),
        *("documents", "file", "audio_data", "audio_duration_s", "hotwords", "language", "to_language", "tokens"),
        *("query", "queries", "items", "item_first", "data", "data_1", "data_2", "text_1", "text_2", "instruction"),
        *("texts", "images", "inputs", "input_type", "task", "previous_response_id", "thinking", "reasoning"),
        *("reasoning_effort", "parallel_tool_calls", "max_tool_calls", "instruct"),
    ),
    "says how the client's own text or media are put to the model": (
        *("add_generation_prompt", "add_special_tokens", "continue_final_message", "chat_template_kwargs"),
        *("media_io_kwargs", "mm_processor_kwargs", "images_config", "video_config", "use_audio_in_video"),
        *("min_dynamic_patch", "max_dynamic_patch", "padding", "max_tokens_per_doc", "max_tokens_per_query"),
        *("embed_overrides", "embed_override_token_id", "item_embed_overrides", "query_embed_overrides"),
        *("late_chunking_params", "truncation_side", "truncation", "truncate"),
    ),
    "cuts the client's own conversation: it is taken out where a prompt is put in front": ("truncate_prompt_tokens",),
    "is refused by vLLM and SGLang unless they trust templates of requests": ("chat_template",),
    "is read by nothing but the model of the body (vLLM)": ("previous_input_messages",),
    "chooses among likely tokens, or ends the answer": (
        *("temperature", "top_p", "top_k", "min_p", "seed", "n", "best_of", "use_beam_search", "length_penalty"),
        *("frequency_penalty", "presence_penalty", "repetition_penalty", "repetition_detection", "logit_bias"),
        *("allowed_token_ids", "bad_words", "stop", "stop_sequences", "stop_token_ids", "stop_regex", "no_stop_trim"),
        *("ignore_eos", "min_tokens", "max_tokens", "max_completion_tokens", "max_output_tokens"),
        *("thinking_token_budget", "ebnf", "regex", "json_schema", "response_format", "structured_outputs", "text"),
        *("output_config", "watermark", "watermarking"),
    ),
    "is the form of the answer": (
        *("stream", "stream_options", "stream_interval", "stream_reasoning", "stream_include_usage"),
        *("stream_continuous_usage_stats", "include", "include_reasoning", "separate_reasoning", "skip_special_tokens"),
        *("spaces_between_special_tokens", "include_stop_str_in_output", "timestamp_granularities", "encoding_format"),
        *("embedding_types", "embed_dtype", "endianness", "dimensions", "output_dimension", "use_activation", "top_n"),
        *("apply_softmax", "label_token_ids", "score_extraction_token", "mm_payload", "background", "store"),
        *("routed_experts_prompt_start", "routed_experts_start_len"),
    ),
    REPEATING: (
        *("echo", "prompt_logprobs", "enable_response_messages", "return_hidden_states", "return_meta_info"),
        *("return_input_ids_in_sglext", "return_output_ids_in_sglext", "return_mm_kwargs", "return_prompt_text"),
        *("return_pooled_hidden_states", "return_prompt_token_ids", "return_routed_experts", "return_sampling_mask"),
        *("return_spec_tokens_details", "return_token_ids", "return_token_logprobs", "return_token_offsets"),
        *("return_token_strs", "return_weight_versions", "return_flat_raw_output_top_logprobs", "return_documents"),
        "return_flat_raw_top_logprobs_b64",
    ),
    "tells of the answer's tokens": (
        *("logprobs", "top_logprobs", "logprob_token_ids", "sampling_logprobs_mode", "return_tokens_as_token_ids"),
        "return_cached_tokens_details",
    ),
    "is a note of the client's, which vLLM and SGLang do not act on": (
        *("user", "metadata", "safety_identifier", "service_tier", "prompt_cache_key", "prompt_cache_options"),
        *("prompt_cache_retention", "betas"),
    ),
}
PASSES = {name: why for why, names in _PASSING.items() for name in names}
"""Field that engines get as clients send it → why that does no harm to others."""
JUDGED = PASSES.keys() | {field.value for field in EngineField}
