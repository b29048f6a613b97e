"""Random weights on disk for a small Llama and for LoRA adapters of it, in the format safetensors.

Engines that draw weights themselves (`--load-format=dummy`) answer all alike: with weights on disk each adapter has
answers of its own. The same seed gives the same weights.
"""

import json
import random
import struct
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Shape = tuple[int, ...]

RANK = 8
"""Rank of the adapters."""


def write_model(folder: Path, config: Mapping[str, Any], seed: int = 1) -> None:
    """Write the weights of a model whose other files are in the folder."""
    _write(folder / "model.safetensors", dict(_model_shapes(config)), seed, 0.2)


def write_adapter(folder: Path, config: Mapping[str, Any], base: str, seed: int) -> None:
    """Write an adapter in the format of PEFT.

    Args:
        folder: the folder, which is made.
        config: of the model.
        base: name of the model, as engines are given it.
        seed: another one gives other answers.
    """
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": RANK,
        "lora_alpha": 2 * RANK,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": ["q_proj", "v_proj"],
    }
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    _write(folder / "adapter_model.safetensors", dict(_adapter_shapes(config)), seed, 0.5)


def _model_shapes(config: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    hidden, inner, words = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    heads = config["num_attention_heads"] * config["head_dim"]
    kv_heads = config["num_key_value_heads"] * config["head_dim"]
    yield "model.embed_tokens.weight", (words, hidden)
    yield "lm_head.weight", (words, hidden)
    yield "model.norm.weight", (hidden,)
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        yield f"{at}.input_layernorm.weight", (hidden,)
        yield f"{at}.post_attention_layernorm.weight", (hidden,)
        for name, rows in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            yield f"{at}.self_attn.{name}_proj.weight", (rows, hidden)
        yield f"{at}.self_attn.o_proj.weight", (hidden, heads)
        for name in ("gate", "up"):
            yield f"{at}.mlp.{name}_proj.weight", (inner, hidden)
        yield f"{at}.mlp.down_proj.weight", (hidden, inner)


def _adapter_shapes(config: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    hidden, size = config["hidden_size"], config["head_dim"]
    for layer in range(config["num_hidden_layers"]):
        for name, heads in (("q_proj", "num_attention_heads"), ("v_proj", "num_key_value_heads")):
            at = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            yield f"{at}.lora_A.weight", (RANK, hidden)
            yield f"{at}.lora_B.weight", (config[heads] * size, RANK)


def _write(file: Path, shapes: Mapping[str, Shape], seed: int, deviation: float) -> None:
    """Write tensors of 32-bit numbers: the weights of norms are 1, all others are drawn around 0."""
    rng, header, end = random.Random(seed), {}, 0  # noqa: S311 - weights
    for name, shape in shapes.items():
        size = 4 * _count(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": (end, end + size)}
        end += size
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    # evenly spread numbers, which are drawn faster than those of a normal distribution
    width = deviation * 12**0.5
    with file.open("wb") as out:
        out.write(struct.pack("<Q", len(head)) + head)
        for shape in shapes.values():
            one = len(shape) == 1
            out.write(
                array("f", [1.0 if one else (rng.random() - 0.5) * width for _ in range(_count(shape))]).tobytes()
            )


def _count(shape: Shape) -> int:
    count = 1
    for length in shape:
        count *= length
    return count
