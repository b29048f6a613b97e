import pytest

from promptgroup_cli.forecast.model_config import ConfigError, ModelConfig, shape

LLAMA = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32}
"""Of Llama-2-7B and Llama-3.1-8B alike."""
GEMMA_2_9B = {
    "model_type": "gemma2", "head_dim": 256, "num_attention_heads": 16, "num_hidden_layers": 42,
    "num_key_value_heads": 8, "sliding_window": 4096,
}  # fmt: skip
QWEN_2 = {
    "model_type": "qwen2", "hidden_size": 3584, "num_attention_heads": 28, "num_hidden_layers": 28,
    "num_key_value_heads": 4, "sliding_window": 131072, "max_window_layers": 20, "use_sliding_window": False,
}  # fmt: skip

SHAPES = {
    "every query head has its KV head": (LLAMA, ModelConfig(32, 32, 256)),
    "query heads share KV heads": ({**LLAMA, "num_key_value_heads": 8}, ModelConfig(32, 8, 256)),
    "all query heads share one": ({**LLAMA, "multi_query": True}, ModelConfig(32, 1, 256)),
    "heads of their own dimension": ({**LLAMA, "head_dim": 64}, ModelConfig(32, 32, 128)),
    "values narrower than keys": ({**LLAMA, "head_dim": 192, "v_head_dim": 128}, ModelConfig(32, 32, 320)),
    "older names": ({"n_layer": 12, "n_head": 12, "n_embd": 768}, ModelConfig(12, 12, 128)),
    "a latent vector for all heads": (
        {"num_hidden_layers": 61, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "num_key_value_heads": 128},
        ModelConfig(61, 1, 576),
    ),
    "the language part of a multi-modal model": (
        {"vision_config": {"num_hidden_layers": 27}, "text_config": LLAMA},
        ModelConfig(32, 32, 256),
    ),
    "every layer has a window": ({**LLAMA, "sliding_window": 4096}, ModelConfig(0, 32, 256, 32, 4096)),
    "every other layer has a window": (GEMMA_2_9B, ModelConfig(21, 8, 512, 21, 4096)),
    "one in six layers has none": (
        {**GEMMA_2_9B, "model_type": "gemma3_text", "num_hidden_layers": 62, "sliding_window": 1024},
        ModelConfig(10, 8, 512, 52, 1024),
    ),
    "as the pattern says": ({**GEMMA_2_9B, "sliding_window_pattern": 3}, ModelConfig(14, 8, 512, 28, 4096)),
    "as each layer says": (
        {**LLAMA, "layer_types": ["sliding_attention", "full_attention"] * 16, "sliding_window": 128},
        ModelConfig(16, 32, 256, 16, 128),
    ),
    "chunks are windows": (
        {**LLAMA, "layer_types": ["chunked_attention"] * 24 + ["full_attention"] * 8, "attention_chunk_size": 8192},
        ModelConfig(8, 32, 256, 24, 8192),
    ),
    "a window that is switched off": (QWEN_2, ModelConfig(28, 4, 256)),
    "a window from some layer on": ({**QWEN_2, "use_sliding_window": True}, ModelConfig(20, 4, 256, 8, 131072)),
    "linear attention by period": (
        {**LLAMA, "num_hidden_layers": 48, "full_attention_interval": 4, "linear_num_key_heads": 16},
        ModelConfig(12, 32, 256, constant=36),
    ),
    "Mamba by period and offset": (
        {**LLAMA, "num_hidden_layers": 36, "attn_layer_period": 8, "attn_layer_offset": 4, "mamba_d_state": 16},
        ModelConfig(4, 32, 256, constant=32),
    ),
    "Mamba by each layer": (
        {**LLAMA, "layer_types": ["mamba"] * 28 + ["attention"] * 4, "mamba_d_state": 128},
        ModelConfig(4, 32, 256, constant=28),
    ),
    "Mamba by letters": ({**LLAMA, "num_hidden_layers": 6, "hybrid_override_pattern": "M-M*-M"},
                         ModelConfig(1, 32, 256, constant=5)),
}  # fmt: skip


@pytest.mark.parametrize("case", SHAPES)
def test_what_layers_keep(case):
    config, kept = SHAPES[case]
    assert shape(config) == kept


REFUSALS = {
    "nothing": ({}, "has no num_hidden_layers"),
    "no heads": ({"num_hidden_layers": 34, "hidden_size": 2560}, "has no num_attention_heads"),
    "no dimension": ({"num_hidden_layers": 2, "num_attention_heads": 2}, "has no hidden_size"),
    "half a latent vector": ({"num_hidden_layers": 2, "kv_lora_rank": 512}, "has no qk_rope_head_dim"),
    "a number in words": ({**LLAMA, "num_key_value_heads": "8"}, "num_key_value_heads is '8'"),
    "a number below one": ({**LLAMA, "num_hidden_layers": -1}, "num_hidden_layers is -1"),
    "an unknown kind of layer": ({**LLAMA, "layer_types": ["retention"] * 32}, "layer types retention"),
    "layers that do not add up": ({**LLAMA, "layer_types": ["full_attention"]}, "lays out 1 layers"),
    "states in unknown layers": ({**LLAMA, "ssm_state_size": 128}, "sets ssm_state_size and no layer_types"),
    "an index beside the cache": ({**LLAMA, "index_head_dim": 128}, "sets index_head_dim"),
    "an encoder": ({**LLAMA, "is_encoder_decoder": True}, "sets is_encoder_decoder"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_counted_is_refused_with_the_key(case):
    config, message = REFUSALS[case]
    with pytest.raises(ConfigError, match=message):
        shape(config)
