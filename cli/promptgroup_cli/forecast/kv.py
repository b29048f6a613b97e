"""Computes the bytes of a token in the KV cache, and the tokens that a replica holds. Does no I/O.

    bytes of a token = layers x KV heads x (key + value) x bytes of a number

Llama-3.1-8B: 32 x 8 x (128 + 128) x 2 = 131,072. A replica of several GPUs by tensor parallelism splits the KV heads
between them; where there are fewer heads than GPUs each GPU stores a whole one, and the replica stores copies.
"""

from dataclasses import dataclass

from promptgroup_cli.forecast.model_config import ConfigError, ModelConfig

BYTES = {"auto": 2, "bf16": 2, "fp16": 2, "fp8": 1}
"""Bytes of a number by `--kv-cache-dtype`; `auto` is the model's own type, which engines serve as 16 bits."""

RESERVE = 1.5e9
"""Bytes of a GPU for activations of a step of 8,192 tokens and CUDA graphs: about 1 GB in engines' start-up logs."""

UTILIZATION = 0.92
"""Share of a GPU's memory that the engine uses: vLLM's default of `--gpu-memory-utilization`."""

TOLERANCE = 0.1
"""Share of the GPUs' memory by which computation and report may differ: GB against GiB is 7 %, activations the rest."""


def stored_heads(shape: ModelConfig, gpus: int) -> int:
    """Return the KV heads that all GPUs of a replica store together, copies included.

    Raises:
        ConfigError: when heads cannot be split evenly; engines refuse that, too.
    """
    whole = (shape.heads, gpus) if shape.heads >= gpus else (gpus, shape.heads)
    if whole[0] % whole[1]:
        raise ConfigError(f"{shape.heads} KV heads cannot be split evenly between {gpus} GPUs")
    return max(shape.heads, gpus)


def token_bytes(shape: ModelConfig, width: int, gpus: int = 1) -> int:
    """Return the bytes that all layers store per token, over all GPUs of a replica.

    Args:
        shape: the model's.
        width: bytes of a number, see BYTES.
        gpus: of one replica (tensor parallelism).
    """
    return (shape.full + shape.windowed) * stored_heads(shape, gpus) * shape.width * width


def context_share(shape: ModelConfig, tokens: float) -> float:
    """Share of `tokens x token_bytes` that a sequence of so many tokens needs: less than 1 beyond a window."""
    if tokens <= shape.window or not shape.windowed:
        return 1.0
    layers = shape.full + shape.windowed
    return (shape.full + shape.windowed * shape.window / tokens) / layers


def capacity(memory: float, weights: float, per_token: int, gpus: int = 1, utilization: float = UTILIZATION) -> int:
    """Return the tokens of KV cache of one replica; 0 when the weights leave no memory.

    Args:
        memory: bytes of one GPU.
        weights: bytes of the model, split between the GPUs.
        per_token: of `token_bytes`.
        gpus: of one replica.
        utilization: share of the memory that the engine uses.
    """
    room = gpus * (memory * utilization - RESERVE) - weights
    return max(0, int(room / per_token))


@dataclass(frozen=True, slots=True)
class Agreement:
    """Comparison of an engine's own figure with the computed one."""

    agrees: bool
    message: str


def compare(computed: int, reported: int, per_token: int, memory: float) -> Agreement:
    """Compare the tokens computed from a model's config with those that the engine reports (`cache_config_info`).

    Compared in bytes, as a share of the memory: where the weights take nearly all of it, a small error of theirs is a
    large one of the rest.

    Args:
        computed: tokens, by `capacity`.
        reported: tokens, as the engine reports them.
        per_token: of `token_bytes`.
        memory: bytes of all GPUs of a replica.
    """
    off = (reported - computed) * per_token / memory
    figures = f"the engine reports {reported:,} tokens of KV cache, {computed:,} were computed"
    if abs(off) <= TOLERANCE:
        return Agreement(True, f"{figures}: within {TOLERANCE:.0%} of the GPUs' memory")
    if off > 0:
        why = "it keeps less of a token than its config says, as with --kv-cache-dtype=fp8, or quantized weights"
    else:
        why = "something else takes the memory, as with a lower --gpu-memory-utilization, LoRA or a draft model"
    return Agreement(False, f"{figures}: {abs(off):.0%} of the GPUs' memory {'more' if off > 0 else 'less'}; {why}")


@dataclass(frozen=True, slots=True)
class WorkingSetForecast:
    """Tokens of KV that are wanted again."""

    prefix: int
    """Tokens of the Tier 1 prefix; every replica caches its own."""
    sessions: float
    """Tokens of all sessions together, beyond the prefix."""

    def room(self, kv_tokens: int, replicas: int) -> float:
        """Return the tokens that all replicas have for sessions; 0 when the prefix alone does not fit."""
        return max(0, kv_tokens - self.prefix) * replicas

    def use(self, kv_tokens: int, replicas: int) -> float:
        """Share of the replicas' KV cache that it fills; more than 1 does not fit."""
        return (self.prefix * replicas + self.sessions) / (kv_tokens * replicas)
