"""A plugin of vLLM: its offloading without a GPU, from which alone it offloads.

Connector, scheduler, manager, order of eviction, the region in /dev/shm, the tier behind it, all metrics and the
address of each byte stay vLLM's own. Replaced are the question for a GPU, its streams and events (a copy is done when
it is submitted), and the copy itself.
"""

import contextlib
import ctypes
import time
from types import SimpleNamespace
from typing import Any


class _Stream:
    def wait_stream(self, _: object) -> None:
        """All work before is done."""

    def wait_event(self, _: object) -> None:
        """All work before is done."""


class _Event:
    def __init__(self, **_: object) -> None:
        self._at = 0.0

    def record(self, _: object) -> None:
        self._at = time.perf_counter()

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """All work before is done."""

    def elapsed_time(self, end: "_Event") -> float:
        """Milliseconds."""
        return (end._at - self._at) * 1e3


def _copy(source: Any, target: Any, sizes: Any, **_: object) -> None:
    for start, end, size in zip(source.tolist(), target.tolist(), sizes.tolist(), strict=True):
        ctypes.memmove(end, start, size)


class _Over:
    """Another object, of which some names are replaced."""

    def __init__(self, whole: object, **names: object) -> None:
        self._whole = whole
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)


def register() -> None:
    """Have vLLM offload from this machine's memory; vLLM calls it in each of its processes."""
    import torch  # noqa: PLC0415 - vLLM's environment has them, and this project's has not
    from vllm.v1.kv_offload.cpu import gpu_worker, spec  # noqa: PLC0415

    class OnDevice(torch.Tensor):  # type: ignore[misc]
        is_cuda = True

    class Handler(gpu_worker.SingleDirectionOffloadingHandler):  # type: ignore[misc]
        def __init__(self, gpu_tensors: Any, **others: Any) -> None:
            super().__init__(gpu_tensors=[each.as_subclass(OnDevice) for each in gpu_tensors], **others)

    stream = _Stream()
    platform = _Over(
        gpu_worker.current_platform,
        is_cuda_alike=lambda: True,
        Stream=_Stream,
        current_stream=lambda: stream,
        stream=lambda _: contextlib.nullcontext(),
    )
    spec.current_platform = platform
    gpu_worker.current_platform = platform
    gpu_worker.torch = _Over(torch, Event=_Event)
    gpu_worker.ops = SimpleNamespace(swap_blocks_batch=_copy)
    gpu_worker.SingleDirectionOffloadingHandler = Handler
