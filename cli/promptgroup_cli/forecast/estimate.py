"""Estimates the speed of one replica by its model's size and its GPUs' data sheets. Does no I/O.

    prefill rate = GPUs x FLOPS x MFU / (2 x active parameters)      a token takes 2 operations a parameter
    step         = weights / (GPUs x bandwidth x MBU)                decoding reads all weights once a step
    context rate = GPUs x bandwidth x MBU / bytes of a token         and the KV of decoding requests

(Kaplan et al., arXiv:2001.08361, 2.1, for the operations; Pope et al., arXiv:2211.05102, for the bounds of decoding.)
Attention's own operations are left out: they make a token dearer by a tenth at a few thousand tokens of context, and
by half at 15,000.
"""

from dataclasses import dataclass

from promptgroup_cli.forecast import kv
from promptgroup_cli.forecast.catalogue import KnownModel
from promptgroup_cli.forecast.forecast import ReplicaForecast
from promptgroup_cli.forecast.gpus import Gpu

MFU = 0.4
"""Share of a GPU's operations that prefill gets (model FLOPs utilization): 0.3 to 0.6 are usual with 16-bit weights."""
MBU = 0.7
"""Share of a GPU's memory bandwidth that decoding gets: 7 ms a step of an 8B model in bf16 on 3.35 TB/s."""


@dataclass(frozen=True, slots=True)
class EngineEstimate:
    """A model on GPUs, as an engine is configured to serve it."""

    model: KnownModel
    gpu: Gpu
    gpus: int = 1
    """GPUs of one replica: `--tensor-parallel-size`."""
    kv_dtype: str = "auto"
    """One of `kv.BYTES`."""
    utilization: float = kv.UTILIZATION
    """Share of a GPU's memory that the engine uses."""

    @property
    def token_bytes(self) -> int:
        """Bytes of a token's KV, over all GPUs of a replica."""
        return kv.token_bytes(self.model.shape, kv.BYTES[self.kv_dtype], self.gpus)

    @property
    def kv_tokens(self) -> int:
        """Tokens of KV cache of a replica; 0 when the model does not fit."""
        return kv.capacity(self.gpu.memory, self.model.weights, self.token_bytes, self.gpus, self.utilization)

    @property
    def prefill_rate(self) -> float:
        """Prompt tokens a second of a replica."""
        return self.gpus * self.gpu.flops * MFU / (2 * self.model.active)


def replica(engine: EngineEstimate, kv_tokens: int | None = None, prefill_rate: float | None = None) -> ReplicaForecast:
    """Return speed and capacity of a replica of an engine; measured figures take precedence.

    Args:
        engine: model and GPUs.
        kv_tokens: as the engine reports them.
        prefill_rate: as it was measured.
    """
    bandwidth = engine.gpus * engine.gpu.bandwidth * MBU
    return ReplicaForecast(
        kv_tokens=engine.kv_tokens if kv_tokens is None else kv_tokens,
        prefill_rate=engine.prefill_rate if prefill_rate is None else prefill_rate,
        step=engine.model.weights / bandwidth,
        context_rate=bandwidth / engine.token_bytes,
        shape=engine.model.shape,
    )
