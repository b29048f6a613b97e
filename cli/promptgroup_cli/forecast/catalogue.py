"""Shapes and sizes of well-known models, by their published configs and model cards.

Nothing is fetched. Does no I/O. Quantized variants have names of their own and are not listed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from promptgroup_cli.forecast.model_config import ModelConfig

SIXTEEN_BITS = 2.0
"""Bytes of a parameter of a checkpoint in bf16 or fp16."""


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model, as far as sizing needs it."""

    shape: ModelConfig
    parameters: float
    active: float
    """Parameters that compute a token; fewer than all in a mixture of experts."""
    weights: float
    """Bytes of the checkpoint."""


def _model(
    shape: ModelConfig, billions: float, active: float | None = None, weights: float | None = None
) -> KnownModel:
    """Return the parameters in billions, the checkpoint in GB."""
    parameters = billions * 1e9
    return KnownModel(
        shape,
        parameters,
        active * 1e9 if active is not None else parameters,
        weights * 1e9 if weights is not None else parameters * SIXTEEN_BITS,
    )


def _gqa(layers: int, heads: int, dim: int = 128) -> ModelConfig:
    return ModelConfig(layers, heads, 2 * dim)


def _mixed(full: int, windowed: int, window: int, heads: int, dim: int) -> ModelConfig:
    return ModelConfig(full, heads, 2 * dim, windowed, window)


MODELS: Mapping[str, KnownModel] = {
    "01-ai/Yi-6B": _model(_gqa(32, 4), 6.06),
    "01-ai/Yi-34B": _model(_gqa(60, 8), 34.4),
    "codellama/CodeLlama-7b-hf": _model(_gqa(32, 32), 6.74),
    "codellama/CodeLlama-13b-hf": _model(_gqa(40, 40), 13.0),
    "codellama/CodeLlama-34b-hf": _model(_gqa(48, 8), 33.7),
    "codellama/CodeLlama-70b-hf": _model(_gqa(80, 8), 69.0),
    "deepseek-ai/DeepSeek-R1": _model(ModelConfig(61, 1, 576), 671.0, 37.0, 689.0),
    "deepseek-ai/DeepSeek-R1-Distill-Llama-8B": _model(_gqa(32, 8), 8.03),
    "deepseek-ai/DeepSeek-R1-Distill-Llama-70B": _model(_gqa(80, 8), 70.6),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": _model(_gqa(28, 4), 7.62),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B": _model(_gqa(48, 8), 14.8),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B": _model(_gqa(64, 8), 32.8),
    "deepseek-ai/DeepSeek-V2-Lite": _model(ModelConfig(27, 1, 576), 15.7, 2.4),
    "deepseek-ai/DeepSeek-V3": _model(ModelConfig(61, 1, 576), 671.0, 37.0, 689.0),
    "deepseek-ai/DeepSeek-V3.1": _model(ModelConfig(61, 1, 576), 671.0, 37.0, 689.0),
    "facebook/opt-125m": _model(_gqa(12, 12, 64), 0.125),
    "facebook/opt-6.7b": _model(_gqa(32, 32), 6.66),
    "facebook/opt-13b": _model(_gqa(40, 40), 12.9),
    "facebook/opt-30b": _model(_gqa(48, 56), 30.0),
    "facebook/opt-66b": _model(_gqa(64, 72), 65.7),
    "google/gemma-2b": _model(_gqa(18, 1, 256), 2.51),
    "google/gemma-7b": _model(_gqa(28, 16, 256), 8.54),
    "google/gemma-2-2b": _model(_mixed(13, 13, 4096, 4, 256), 2.61),
    "google/gemma-2-9b": _model(_mixed(21, 21, 4096, 8, 256), 9.24),
    "google/gemma-2-27b": _model(_mixed(23, 23, 4096, 16, 128), 27.2),
    "google/gemma-3-4b": _model(_mixed(5, 29, 1024, 4, 256), 4.3),
    "google/gemma-3-12b": _model(_mixed(8, 40, 1024, 8, 256), 12.2),
    "google/gemma-3-27b": _model(_mixed(10, 52, 1024, 16, 128), 27.4),
    "lmsys/vicuna-7b-v1.5": _model(_gqa(32, 32), 6.74),
    "lmsys/vicuna-13b-v1.5": _model(_gqa(40, 40), 13.0),
    "meta-llama/Llama-2-7b-hf": _model(_gqa(32, 32), 6.74),
    "meta-llama/Llama-2-13b-hf": _model(_gqa(40, 40), 13.0),
    "meta-llama/Llama-2-70b-hf": _model(_gqa(80, 8), 69.0),
    "meta-llama/Meta-Llama-3-8B": _model(_gqa(32, 8), 8.03),
    "meta-llama/Meta-Llama-3-70B": _model(_gqa(80, 8), 70.6),
    "meta-llama/Llama-3.1-8B": _model(_gqa(32, 8), 8.03),
    "meta-llama/Llama-3.1-70B": _model(_gqa(80, 8), 70.6),
    "meta-llama/Llama-3.1-405B": _model(_gqa(126, 8), 406.0),
    "meta-llama/Llama-3.2-1B": _model(_gqa(16, 8, 64), 1.24),
    "meta-llama/Llama-3.2-3B": _model(_gqa(28, 8), 3.21),
    "meta-llama/Llama-3.3-70B": _model(_gqa(80, 8), 70.6),
    "microsoft/Phi-3-mini-4k": _model(_mixed(0, 32, 2047, 32, 96), 3.82),
    "microsoft/Phi-3-mini-128k": _model(_gqa(32, 32, 96), 3.82),
    "microsoft/phi-4": _model(_gqa(40, 10), 14.7),
    "mistralai/Mistral-7B-v0.1": _model(_mixed(0, 32, 4096, 8, 128), 7.24),
    "mistralai/Mistral-7B-v0.2": _model(_gqa(32, 8), 7.24),
    "mistralai/Mistral-7B-v0.3": _model(_gqa(32, 8), 7.25),
    "mistralai/Mistral-Nemo-2407": _model(_gqa(40, 8), 12.2),
    "mistralai/Mistral-Small-24B-2501": _model(_gqa(40, 8), 23.6),
    "mistralai/Mixtral-8x7B-v0.1": _model(_gqa(32, 8), 46.7, 12.9),
    "mistralai/Mixtral-8x22B-v0.1": _model(_gqa(56, 8), 140.6, 39.1),
    "moonshotai/Kimi-K2": _model(ModelConfig(61, 1, 576), 1026.0, 32.0, 1030.0),
    "openai-community/gpt2": _model(_gqa(12, 12, 64), 0.124),
    "openai/gpt-oss-20b": _model(_mixed(12, 12, 128, 8, 64), 20.9, 3.6, 13.8),
    "openai/gpt-oss-120b": _model(_mixed(18, 18, 128, 8, 64), 116.8, 5.1, 65.3),
    "Qwen/QwQ-32B": _model(_gqa(64, 8), 32.8),
    "Qwen/Qwen2-7B": _model(_gqa(28, 4), 7.62),
    "Qwen/Qwen2-72B": _model(_gqa(80, 8), 72.7),
    "Qwen/Qwen2.5-0.5B": _model(_gqa(24, 2, 64), 0.49),
    "Qwen/Qwen2.5-1.5B": _model(_gqa(28, 2), 1.54),
    "Qwen/Qwen2.5-3B": _model(_gqa(36, 2), 3.09),
    "Qwen/Qwen2.5-7B": _model(_gqa(28, 4), 7.62),
    "Qwen/Qwen2.5-14B": _model(_gqa(48, 8), 14.8),
    "Qwen/Qwen2.5-32B": _model(_gqa(64, 8), 32.8),
    "Qwen/Qwen2.5-72B": _model(_gqa(80, 8), 72.7),
    "Qwen/Qwen3-0.6B": _model(_gqa(28, 8), 0.6),
    "Qwen/Qwen3-1.7B": _model(_gqa(28, 8), 1.72),
    "Qwen/Qwen3-4B": _model(_gqa(36, 8), 4.02),
    "Qwen/Qwen3-8B": _model(_gqa(36, 8), 8.19),
    "Qwen/Qwen3-14B": _model(_gqa(40, 8), 14.8),
    "Qwen/Qwen3-32B": _model(_gqa(64, 8), 32.8),
    "Qwen/Qwen3-30B-A3B": _model(_gqa(48, 4), 30.5, 3.3),
    "Qwen/Qwen3-235B-A22B": _model(_gqa(94, 4), 235.0, 22.0),
    "Qwen/Qwen3-Coder-30B-A3B": _model(_gqa(48, 4), 30.5, 3.3),
    "Qwen/Qwen3-Coder-480B-A35B": _model(_gqa(62, 8), 480.0, 35.0),
    "TinyLlama/TinyLlama-1.1B": _model(_gqa(22, 4, 64), 1.1),
    "tiiuae/falcon-7b": _model(_gqa(32, 1, 64), 7.22),
    "tiiuae/falcon-40b": _model(_gqa(60, 8, 64), 41.8),
    "zai-org/GLM-4.5": _model(_gqa(92, 8), 355.0, 32.0),
    "zai-org/GLM-4.5-Air": _model(_gqa(46, 8), 106.0, 12.0),
}

_TUNED = re.compile(r"-(instruct|chat|it|base|pt|thinking|python|hf|v1\.0)(?=-|$)", re.IGNORECASE)
"""Suffixes of names of one shape: its tuning, and its storage format."""
_DATED = re.compile(r"-(2507|0528|0324|0905)$")


def model(name: str) -> KnownModel | None:
    """Return the model of a Hugging Face name, however it was tuned; None when it is not listed."""
    return _PLAIN.get(_plain(name))


def _plain(name: str) -> str:
    return _DATED.sub("", _TUNED.sub("", name)).lower().replace("/meta-llama-", "/llama-")


_PLAIN = {_plain(name): model_size for name, model_size in MODELS.items()}
