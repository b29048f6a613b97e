"""Reads the size of a model's KV cache from its Hugging Face config.json. Does no I/O.

| attention                  | stored per token in one layer                        | by                               |
|----------------------------|------------------------------------------------------|----------------------------------|
| multi-head, GQA, MQA       | a key and a value in each KV head                    | arXiv:1706.03762, 2305.13245     |
| multi-head latent (MLA)    | one latent vector and one rotary key, for all heads  | arXiv:2405.04434, 2.1            |
| sliding window, chunked    | as the first, of the last tokens only                | arXiv:2004.05150                 |
| Mamba, linear, convolution | nothing: a state of constant size for each sequence  | arXiv:2312.00752                 |

A config that cannot be counted with certainty is refused, never guessed.
"""

from collections.abc import Mapping
from dataclasses import dataclass


class ConfigError(ValueError):
    """A config.json from which the KV cache cannot be computed; the message names the missing part."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The numbers that a model's layers store per token."""

    full: int
    """Layers that keep every token."""
    heads: int
    """KV heads of a layer; 1 with a latent vector that serves all heads."""
    width: int
    """Numbers that one head stores per token: key and value together."""
    windowed: int = 0
    """Layers that keep the last `window` tokens only."""
    window: int = 0
    constant: int = 0
    """Layers whose state does not grow with tokens."""


_FULL = {"full_attention", "attention", "global_attention"}
_WINDOWED = {"sliding_attention", "chunked_attention", "local_attention"}
_CONSTANT = {"linear_attention", "mamba", "mamba2", "conv", "recurrent"}
"""The words of `layer_types`."""

_PERIODS = {"gemma2": 2, "gemma3": 6, "gemma3_text": 6, "cohere2": 4}
"""Model types where every n-th layer keeps all tokens and the others a window, though their published configs do not
say so (`sliding_window_pattern` of their classes in transformers)."""

_REFUSED = {
    "index_head_dim": "its sparse attention keeps an index beside the KV cache",
    "global_head_dim": "its layers have heads of two sizes",
    "num_global_key_value_heads": "its layers have two numbers of KV heads",
    "num_kv_shared_layers": "some of its layers use the KV of others",
    "cross_attention_layers": "some of its layers attend to another input",
    "is_encoder_decoder": "an encoder's output is kept beside the KV cache",
    "linear_attn_config": "its layout of linear attention is not known",
    "attn_type_list": "its layout of linear attention is not known",
    "ssm_cfg": "its layout of state-space layers is not known",
}
"""Keys that, when set, mean that a layer's cache differs from the caches that are counted here."""

_STATE = ("mamba_d_state", "mamba_state_dim", "ssm_state_size", "state_size", "linear_num_key_heads")
"""Keys of models some layers of which keep a state instead of tokens."""


def shape(config: Mapping[str, object]) -> ModelConfig:
    """Return the numbers that the layers of a model store.

    Args:
        config: a parsed config.json; of a multi-modal model its language part (`text_config`) counts.

    Raises:
        ConfigError: when something is missing, is no number, or cannot be counted.
    """
    nested = config.get("text_config")
    text: Mapping[str, object] = nested if isinstance(nested, Mapping) else config
    for key, reason in _REFUSED.items():
        if text.get(key):
            raise ConfigError(f"config.json sets {key}: {reason}")
    layers = _number(text, "num_hidden_layers", "n_layer", "num_layers")
    heads, width = _heads(text)
    full, windowed, constant = _layout(text, layers)
    window = _number(text, "sliding_window", "attention_chunk_size") if windowed else 0
    return ModelConfig(full, heads, width, windowed, window, constant)


def _heads(text: Mapping[str, object]) -> tuple[int, int]:
    """Return the KV heads of a layer, and the numbers that each stores per token."""
    if text.get("kv_lora_rank"):
        return 1, _number(text, "kv_lora_rank") + _number(text, "qk_rope_head_dim")
    queries = _number(text, "num_attention_heads", "n_head")
    key = _number(text, "head_dim") if text.get("head_dim") else _number(text, "hidden_size", "n_embd") // queries
    value = _number(text, "v_head_dim") if text.get("v_head_dim") else key
    if text.get("num_key_value_heads") or text.get("num_kv_heads"):
        heads = _number(text, "num_key_value_heads", "num_kv_heads")
    else:
        # older configs: `multi_query` is MQA, and without it there is one KV head for each query head
        heads = 1 if text.get("multi_query") else queries
    return heads, key + value


def _layout(text: Mapping[str, object], layers: int) -> tuple[int, int, int]:
    """Return the numbers of layers that keep all tokens, a window of them, and none."""
    for listed in (_by_types(text), _by_period(text, layers)):
        if listed is not None:
            if sum(listed) != layers:
                raise ConfigError(f"config.json lays out {sum(listed)} layers, num_hidden_layers is {layers}")
            return listed
    for key in _STATE:
        if text.get(key):
            raise ConfigError(f"config.json sets {key} and no layer_types: which layers keep KV is not known")
    if text.get("sliding_window") is None or text.get("use_sliding_window") is False:
        return layers, 0, 0
    every = text.get("sliding_window_pattern") or _PERIODS.get(str(text.get("model_type")))
    if isinstance(every, int):
        full = layers // every
    elif text.get("use_sliding_window"):
        # Qwen2: layers below max_window_layers keep everything
        full = min(layers, _number(text, "max_window_layers"))
    else:
        full = 0
    return full, layers - full, 0


def _by_types(text: Mapping[str, object]) -> tuple[int, int, int] | None:
    """Return the layout from a list of words (`layer_types`) or of letters (of Nemotron-H: `*`, M, -)."""
    types = text.get("layer_types")
    if isinstance(types, (list, tuple)):
        unknown = sorted({str(kind) for kind in types} - _FULL - _WINDOWED - _CONSTANT)
        if unknown:
            raise ConfigError(f"config.json names the layer types {', '.join(unknown)}: what they keep is not known")
        windowed = sum(kind in _WINDOWED for kind in types)
        constant = sum(kind in _CONSTANT for kind in types)
        return len(types) - windowed - constant, windowed, constant
    letters = text.get("hybrid_override_pattern")
    if isinstance(letters, str):
        return letters.count("*"), 0, len(letters) - letters.count("*")
    return None


def _by_period(text: Mapping[str, object], layers: int) -> tuple[int, int, int] | None:
    """Return the layout from the period of the layers that have attention (Qwen3-Next, Jamba)."""
    if text.get("full_attention_interval"):
        full = layers // _number(text, "full_attention_interval")
    elif text.get("attn_layer_period"):
        offset = text.get("attn_layer_offset")
        first = offset if isinstance(offset, int) else 0
        full = len(range(first, layers, _number(text, "attn_layer_period")))
    else:
        return None
    return full, 0, layers - full


def _number(text: Mapping[str, object], *keys: str) -> int:
    for key in keys:
        value = text.get(key)
        if value is not None:
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(f"config.json: {key} is {value!r}, not a positive whole number")
            return value
    raise ConfigError(f"config.json has no {keys[0]}")
