"""SGLang on CPU.

Its CPU mode imports a package that the registry has for GPUs only. `shims/` of the folder, a folder of Python modules,
stands in for it.
"""

from pathlib import Path

from promptgroup_local.real.engine import RealEngine
from promptgroup_operator.api.prompt_group import EngineType

SGLANG = RealEngine(
    type=EngineType.SGLANG,
    image="lmsysorg/sglang:v0.5.23",
    program='PATH="$PWD/venv/bin:$PATH" PYTHONPATH="$PWD/shims" exec "$@"',
    parts=("venv/bin/python3", "tiny/config.json", "shims"),
    args=(
        *("--device=cpu", "--load-format=dummy", "--dtype=bfloat16"),
        *("--attention-backend=torch_native", "--sampling-backend=pytorch"),
        "--sleep-on-idle",  # else it polls, with two fifths of a core
        "--max-total-tokens=65536",
        "--context-length=8192",
    ),
    small=("--context-length=6144", "--max-total-tokens=8192"),
    environment={
        "SGLANG_USE_CPU_ENGINE": "1",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    },
    reset="/flush_cache",
)
"""SGLang 0.5.23."""

LORA_ARGS = ("--lora-backend=torch_native",)
"""The settings that LoRA adapters need on a CPU, beside the plugin of `write_lora_plugin`."""

_PLUGIN = """\
import torch


def register():
    for name in ("tensor", "empty", "zeros"):
        setattr(torch, name, unpinned(getattr(torch, name)))
    torch.Tensor.pin_memory = lambda self, device=None: self


def unpinned(make):
    return lambda *args, pin_memory=False, **fields: make(*args, **fields)
"""


def write_lora_plugin(folder: Path) -> None:
    """Write a plugin of SGLang, for its PYTHONPATH, with which it loads LoRA adapters on a machine without a GPU.

    SGLang asks for page-locked memory on its way to a GPU, and torch refuses that without a driver; here it gets plain
    memory. Nothing is computed in another way.
    """
    distribution = folder / "lora_on_cpu-1.dist-info"
    distribution.mkdir(parents=True)
    (folder / "lora_on_cpu.py").write_text(_PLUGIN)
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: lora-on-cpu\nVersion: 1\n")
    (distribution / "entry_points.txt").write_text("[sglang.srt.plugins]\nlora_on_cpu = lora_on_cpu:register\n")
