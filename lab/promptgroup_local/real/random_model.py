"""A model that needs no download: a Llama whose weights the engine draws at random, and a tokenizer of bytes.

A byte is a token, so that a prompt's length follows without an engine. Answers are noise; prefill, KV cache and prefix
caching are those of a model of its size.
"""

import json
from pathlib import Path
from typing import Any

SPECIAL = ("<s>", "</s>", "<|im_start|>", "<|im_end|>")
LONGEST = 131_072
"""Tokens of the longest request."""
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "dtype": "bfloat16",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "head_dim": 64,
    "vocab_size": 256 + len(SPECIAL),
    "max_position_embeddings": LONGEST,
    "rope_theta": 500_000.0,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "bos_token_id": 256,
    "eos_token_id": 257,
}
"""1.1 billion parameters in the shape of Llama 3.2 1B, with a KV head for each head: 128 KiB of KV a token, as an 8B
model with grouped heads has."""
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write(folder: Path) -> None:
    """Write the model's folder, without weights: `--load-format=dummy` draws them."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    files = {
        "config.json": CONFIG,
        "tokenizer.json": _tokenizer(),
        "tokenizer_config.json": {**tokenizer, "model_max_length": LONGEST, "chat_template": TEMPLATE},
        "generation_config.json": {"bos_token_id": 256, "eos_token_id": 257},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))


def _tokenizer() -> dict[str, Any]:
    """Return a byte-level BPE without merges, in the format of Hugging Face's tokenizers."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": 256 + place, "content": text, **flags} for place, text in enumerate(SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {"type": "BPE", "vocab": {letter: byte for byte, letter in enumerate(_letters())}, "merges": []},
    }


def _letters() -> list[str]:
    """Return the letter that represents each byte in byte-level vocabularies: its own where that is visible."""
    seen = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    hidden = iter(range(256, 512))
    return [chr(byte if byte in seen else next(hidden)) for byte in range(256)]
