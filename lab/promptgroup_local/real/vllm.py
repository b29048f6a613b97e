"""vLLM on CPU."""

from promptgroup_local.real.engine import RealEngine
from promptgroup_operator.api.prompt_group import EngineType

VLLM = RealEngine(
    type=EngineType.VLLM,
    image="vllm/vllm-openai:v0.32.0",
    program='exec venv/bin/vllm serve "$@" --host {pod_ip}',
    parts=("venv/bin/vllm", "tiny/config.json"),
    args=(
        *("--load-format=dummy", "--dtype=bfloat16", "--enforce-eager"),
        "--block-size=32",  # CPU engines take multiples of it only
        "--max-model-len=8192",
    ),
    small=("--max-model-len=6144", "--num-gpu-blocks-override=256"),
    environment={
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_SERVER_DEV_MODE": "1",  # with POST /reset_prefix_cache
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
    },
    reset="/reset_prefix_cache",
)
"""vLLM 0.32."""
