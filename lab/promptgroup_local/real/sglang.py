"""SGLang on CPU.

Its CPU mode imports a package that the registry has for GPUs only. `shims/` of the folder, a folder of Python modules,
stands in for it.
"""

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
