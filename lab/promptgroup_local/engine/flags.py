"""The command lines of engines, as far as they bear on caching, and the stand-in's own knobs.

A Deployment written for an engine starts the stand-in with the same arguments: those of `vllm serve`, or `python3 -m
sglang.launch_server ...`, or `trtllm-serve ...`, whose words it speaks from then on. Flags that it does not know are
named on stderr and skipped, with their values. What is no flag of theirs comes from the environment (`STANDIN_*`).
"""

import argparse
import enum
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from promptgroup_local.engine.adapters.loaded import parse_module
from promptgroup_local.engine.scheduler import Cost, Limits

DEFAULT_BLOCKS = 25_000
"""400,000 tokens in blocks of 16: an 8B model on one 80 GB GPU."""

DEFAULT_TOKENS = 400_000
"""The same cache, for engines whose flags give its size in tokens."""

TOKEN_BYTES = 128 << 10
"""KV of a token: that of an 8B model in 16 bits."""

POOL_BLOCKS = 1_000_000
"""Blocks of a pool. It is the engine's own here: stand-ins share nothing."""

DEFAULT_MAX_MODEL_LEN = 131_072
"""Context of the Llama 3 family; limited to the capacity of the cache when no length is given."""


class FlagError(ValueError):
    """A flag or variable that cannot be used: the text names it, its value and the expected form."""


class Speech(enum.Enum):
    """The engine that the stand-in imitates: arguments, paths, metrics."""

    VLLM = "vLLM"
    SGLANG = "SGLang"
    TENSORRT_LLM = "TensorRT-LLM"


@dataclass(frozen=True, slots=True)
class Knobs:
    """The stand-in's own settings."""

    cost: Cost = field(default_factory=Cost)
    time_scale: float = 1.0
    """Every duration is multiplied by it; below 1 the engine is faster than real."""
    startup: float = 0.2
    """Seconds until the port listens: the time in which a model would load."""
    error_rate: float = 0.0
    """Share of completions answered with 500, spread evenly."""
    max_tokens: int = 16
    """Answer length of a request that names none."""
    scripts: bool = False
    """True if answers have words of several scripts, whose tokens end within characters."""


@dataclass(frozen=True, slots=True)
class Flags:
    """The flags of the command line."""

    speech: Speech
    model: str
    served_names: tuple[str, ...]
    host: str
    port: int
    block_size: int
    blocks: int
    prefix_caching: bool
    prompt_tokens_details: bool
    metrics: bool
    """True if metrics are served."""
    max_model_len: int
    limits: Limits
    tier_blocks: int = 0
    """Blocks of the tier behind the cache; 0 for none."""
    tier_source: str = "host"
    """Name that vLLM has for it."""
    certificate: Path | None = None
    """File of the certificate, in PEM; None to serve plain HTTP."""
    key: Path | None = None
    """File of its key."""
    renews: bool = False
    """True if the files are read again when they change."""
    ranks: int = 1
    """Data-parallel ranks, each with a KV cache of its own."""
    adapters: tuple[tuple[str, str], ...] = ()
    """Name and path of the LoRA adapters that are loaded at the start."""
    max_adapters: int = 0
    """LoRA adapters that run at the same time; 0 without any."""
    loaded_adapters: int = 0
    """LoRA adapters that SGLang keeps loaded; 0 for any number."""
    shutdown_timeout: float = 0.0
    """Seconds that running requests have after SIGTERM, in vLLM, before they are aborted."""
    headless: bool = False
    """True if it is a worker of a replica of several nodes, which serves nothing."""
    unknown: tuple[str, ...] = ()
    """Flags that were skipped: names only, since a value may be a key."""


def parse(argv: Sequence[str]) -> Flags:
    """Flags from arguments.

    Raises:
        FlagError: no model, or a value that cannot be used.
    """
    speech, words = _launched(argv)
    parser = _PARSERS[speech]()
    known, unknown = _split(words, parser)
    args = parser.parse_args(known)
    model = args.model_flag or args.model
    if not model:
        raise FlagError("MODEL is missing: name it before the first flag, or as --model NAME")
    if args.config is not None:
        _configure(args, args.config)
    blocks = args.num_gpu_blocks_override or args.tokens // args.block_size
    if (args.ssl_certfile is None) != (args.ssl_keyfile is None):
        raise FlagError("--ssl-certfile and --ssl-keyfile go together: one of them is missing")
    if args.tensor_parallel_size * args.pipeline_parallel_size % args.nnodes:
        raise FlagError(
            f"--nnodes is {args.nnodes}, and must evenly divide the product of --tensor-parallel-size and "
            f"--pipeline-parallel-size, {args.tensor_parallel_size * args.pipeline_parallel_size}"
        )
    capacity = blocks * args.block_size
    max_model_len = args.max_model_len or min(DEFAULT_MAX_MODEL_LEN, capacity)
    if max_model_len > capacity:
        raise FlagError(
            f"--max-model-len is {max_model_len}, more than the {capacity} tokens that the KV cache holds: "
            f"raise --num-gpu-blocks-override or lower --max-model-len"
        )
    return Flags(
        speech=speech,
        model=model,
        served_names=tuple(args.served_model_name or [model]),
        host=args.host,
        port=args.port,
        block_size=args.block_size,
        blocks=blocks,
        prefix_caching=args.enable_prefix_caching,
        prompt_tokens_details=args.enable_prompt_tokens_details,
        metrics=args.metrics,
        max_model_len=max_model_len,
        limits=Limits(tokens=args.max_num_batched_tokens, requests=args.max_num_seqs),
        certificate=args.ssl_certfile,
        key=args.ssl_keyfile,
        renews=args.enable_ssl_refresh,
        tier_blocks=_tier_blocks(args),
        tier_source="external_unspecified" if _connector(args) in _POOLS else "host",
        ranks=args.ranks,
        adapters=tuple(args.lora_modules),
        max_adapters=args.max_loras if args.enable_lora or (args.lora_modules and speech is Speech.SGLANG) else 0,
        loaded_adapters=args.max_loaded_loras,
        shutdown_timeout=args.shutdown_timeout,
        headless=args.headless or args.node_rank > 0,
        unknown=unknown,
    )


_POOLS = frozenset({"LMCacheMPConnector", "MooncakeStoreConnector"})


def _connector(args: argparse.Namespace) -> str:
    return str(args.kv_transfer_config.get("kv_connector", ""))


def _tier_blocks(args: argparse.Namespace) -> int:
    """Return the blocks that fit into the memory that is given for them."""
    if _connector(args) in _POOLS:
        return POOL_BLOCKS
    extra = args.kv_transfer_config.get("kv_connector_extra_config") or {}
    memory = args.kv_offloading_size * 2**30 or float(extra.get("cpu_bytes_to_use", 0))
    if args.enable_hierarchical_cache:
        memory = args.hicache_size * 1e9
    return int(memory / TOKEN_BYTES / args.block_size)


def knobs(environment: Mapping[str, str]) -> Knobs:
    """The stand-in's own settings from `STANDIN_*`.

    Raises:
        FlagError: a value that cannot be used.
    """
    cost = Cost()
    default = Knobs()
    return Knobs(
        cost=Cost(
            prefill_rate=_number(environment, "STANDIN_PREFILL_TOKENS_PER_SECOND", cost.prefill_rate, above=0),
            attention_length=_number(environment, "STANDIN_ATTENTION_LENGTH", cost.attention_length, above=0),
            step=_number(environment, "STANDIN_STEP_MS", cost.step * 1000) / 1000,
            decode_sequence=_number(environment, "STANDIN_DECODE_SEQUENCE_MS", cost.decode_sequence * 1000) / 1000,
            decode_kilotoken=_number(environment, "STANDIN_DECODE_KILOTOKEN_MS", cost.decode_kilotoken * 1000) / 1000,
        ),
        time_scale=_number(environment, "STANDIN_TIME_SCALE", default.time_scale),
        startup=_number(environment, "STANDIN_STARTUP_SECONDS", default.startup),
        error_rate=_number(environment, "STANDIN_ERROR_RATE", default.error_rate, most=1),
        max_tokens=int(_number(environment, "STANDIN_MAX_TOKENS", default.max_tokens, above=0)),
        scripts=bool(_number(environment, "STANDIN_SCRIPTS", default.scripts, most=1)),
    )


def _number(
    environment: Mapping[str, str], name: str, default: float, *, above: float | None = None, most: float = 1e9
) -> float:
    text = environment.get(name, "")
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    low_enough = value <= most
    high_enough = value >= 0 if above is None else value > above
    if not (low_enough and high_enough):
        expected = f"a number {'from 0' if above is None else f'above {above:g}'} to {most:g}"
        raise FlagError(f"{name} is {text!r}, expected {expected}")
    return value


_LAUNCHERS: Mapping[tuple[str, ...], Speech] = {
    ("python3", "-m", "sglang.launch_server"): Speech.SGLANG,
    ("trtllm-serve",): Speech.TENSORRT_LLM,
}
"""Programs whose images run any command line; the entry point of vLLM's image is its program."""


def _launched(argv: Sequence[str]) -> tuple[Speech, list[str]]:
    """The engine of a command line, and its other words: an image may add words before the program."""
    words = list(argv)
    for program, speech in _LAUNCHERS.items():
        for at in range(len(words)):
            if tuple(words[at : at + len(program)]) == program:
                return speech, words[:at] + words[at + len(program) :]
    return Speech.VLLM, words


def _configure(args: argparse.Namespace, path: Path) -> None:
    """Return the settings that TensorRT-LLM reads from its file.

    Raises:
        FlagError: no file of settings there.
    """
    try:
        result: Any = yaml.safe_load(path.read_text()) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise FlagError(f"--config {path}: {error}") from error
    cache = result.get("kv_cache_config", {}) if isinstance(result, dict) else None
    if not isinstance(cache, dict):
        raise FlagError(f"--config {path}: expected a mapping of settings")
    args.metrics = bool(result.get("return_perf_metrics")) and bool(result.get("enable_iter_perf_stats"))
    args.enable_prefix_caching = bool(cache.get("enable_block_reuse", True))
    args.block_size = int(cache.get("tokens_per_block", args.block_size))
    args.tokens = int(cache.get("max_tokens", args.tokens))


def _common(*, host: str, port: int, block_size: int) -> argparse.ArgumentParser:
    """Add the flags that every engine has, under the names that `parse` reads."""
    parser = argparse.ArgumentParser(prog="python -m promptgroup_local.engine", description=__doc__, allow_abbrev=False)
    parser.add_argument("model", nargs="?", metavar="MODEL")
    parser.add_argument("--host", default=host)
    parser.add_argument("--port", type=int, default=port)
    limits = Limits()
    parser.set_defaults(
        model_flag=None,
        served_model_name=None,
        config=None,
        num_gpu_blocks_override=0,
        tokens=DEFAULT_TOKENS,
        block_size=block_size,
        enable_prefix_caching=True,
        enable_prompt_tokens_details=False,
        metrics=True,
        max_model_len=0,
        max_num_seqs=limits.requests,
        max_num_batched_tokens=limits.tokens,
        kv_transfer_config={},
        kv_offloading_size=0.0,
        enable_hierarchical_cache=False,
        hicache_size=0.0,
        ssl_certfile=None,
        ssl_keyfile=None,
        enable_ssl_refresh=False,
        ranks=1,
        enable_lora=False,
        lora_modules=[],
        max_loras=1,
        max_loaded_loras=0,
        shutdown_timeout=0.0,
        tensor_parallel_size=1,
        pipeline_parallel_size=1,
        nnodes=1,
        node_rank=0,
        headless=False,
    )
    return parser


def _nodes(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a replica of several nodes, which vLLM and SGLang share."""
    parser.add_argument("--nnodes", type=_count)
    parser.add_argument("--node-rank", type=int)


def _tls(parser: argparse.ArgumentParser) -> None:
    """Add the flags of TLS, which vLLM and SGLang share."""
    parser.add_argument("--ssl-certfile", type=Path)
    parser.add_argument("--ssl-keyfile", type=Path)
    parser.add_argument("--enable-ssl-refresh", action="store_true")


def _vllm() -> argparse.ArgumentParser:
    parser = _common(host="0.0.0.0", port=8000, block_size=16)
    parser.set_defaults(num_gpu_blocks_override=DEFAULT_BLOCKS)
    switch = argparse.BooleanOptionalAction
    parser.add_argument("--model", dest="model_flag", metavar="MODEL")
    parser.add_argument("--served-model-name", nargs="+", metavar="NAME")
    _tls(parser)
    parser.add_argument("--block-size", type=_count)
    parser.add_argument("--num-gpu-blocks-override", type=_count)
    parser.add_argument("--enable-prefix-caching", action=switch)
    parser.add_argument("--enable-prompt-tokens-details", action=switch)
    _nodes(parser)
    parser.add_argument("--headless", action="store_true")
    parser.add_argument("--tensor-parallel-size", "-tp", type=_count)
    parser.add_argument("--pipeline-parallel-size", "-pp", type=_count)
    parser.add_argument("--max-model-len", type=_count)
    parser.add_argument("--max-num-seqs", type=_count)
    parser.add_argument("--max-num-batched-tokens", type=_count)
    parser.add_argument("--kv-offloading-size", type=float)
    parser.add_argument("--shutdown-timeout", type=float)
    parser.add_argument("--data-parallel-size", "-dp", dest="ranks", type=_count)
    parser.add_argument("--kv-transfer-config", type=_object)
    parser.add_argument("--enable-lora", action=switch)
    parser.add_argument("--lora-modules", type=parse_module, nargs="+", metavar="NAME=PATH")
    for name in ("--max-loras", "--max-cpu-loras", "--max-lora-rank"):
        parser.add_argument(name, type=_count)
    return parser


def _sglang() -> argparse.ArgumentParser:
    parser = _common(host="127.0.0.1", port=30000, block_size=1)
    parser.set_defaults(metrics=False)
    parser.add_argument("--model-path", "--model", dest="model_flag", metavar="MODEL")
    parser.add_argument("--served-model-name", nargs=1, metavar="NAME")
    _tls(parser)
    _nodes(parser)
    parser.add_argument("--tensor-parallel-size", "--tp-size", "--tp", type=_count)
    parser.add_argument("--pipeline-parallel-size", "--pp-size", "--pp", dest="pipeline_parallel_size", type=_count)
    parser.add_argument("--page-size", dest="block_size", type=_count)
    parser.add_argument("--max-total-tokens", dest="tokens", type=_count)
    parser.add_argument("--disable-radix-cache", dest="enable_prefix_caching", action="store_false")
    parser.add_argument("--enable-cache-report", dest="enable_prompt_tokens_details", action="store_true")
    parser.add_argument("--enable-metrics", dest="metrics", action="store_true")
    parser.add_argument("--context-length", dest="max_model_len", type=_count)
    parser.add_argument("--max-running-requests", dest="max_num_seqs", type=_count)
    parser.add_argument("--chunked-prefill-size", dest="max_num_batched_tokens", type=_count)
    parser.add_argument("--data-parallel-size", "--dp-size", "--dp", dest="ranks", type=_count)
    parser.add_argument("--enable-hierarchical-cache", action="store_true")
    parser.add_argument("--enable-lora", action="store_true")
    parser.add_argument("--lora-paths", dest="lora_modules", type=parse_module, nargs="*", metavar="NAME=PATH")
    parser.add_argument("--max-loras-per-batch", dest="max_loras", type=_count)
    parser.add_argument("--max-loaded-loras", type=_count)
    parser.add_argument("--max-lora-rank", type=_count)
    parser.add_argument("--lora-target-modules", nargs="*")
    parser.add_argument("--hicache-size", type=float)
    return parser


def _tensorrt_llm() -> argparse.ArgumentParser:
    parser = _common(host="localhost", port=8000, block_size=32)
    parser.set_defaults(metrics=False, enable_prompt_tokens_details=True)
    parser.add_argument("--config", "--extra-llm-api-options", dest="config", type=Path)
    parser.add_argument("--max-seq-len", dest="max_model_len", type=_count)
    parser.add_argument("--max-batch-size", dest="max_num_seqs", type=_count)
    parser.add_argument("--max-num-tokens", dest="max_num_batched_tokens", type=_count)
    return parser


_PARSERS = {Speech.VLLM: _vllm, Speech.SGLANG: _sglang, Speech.TENSORRT_LLM: _tensorrt_llm}


def _split(argv: Sequence[str], parser: argparse.ArgumentParser) -> tuple[list[str], tuple[str, ...]]:
    """Arguments that the parser defines, and the names of other flags, which are removed with their values."""
    names = {name for action in parser._actions for name in action.option_strings}  # noqa: SLF001 — no public list
    known: list[str] = []
    unknown: list[str] = []
    skipping = False
    for argument in argv:
        if argument.startswith("-"):
            flag, equals, value = argument.partition("=")
            if flag.startswith("--"):
                flag = flag.replace("_", "-")  # vLLM accepts both spellings
            skipping = flag not in names
            if skipping:
                unknown.append(flag)
            else:
                known.append(flag + equals + value)
        elif not skipping:
            known.append(argument)
    return known, tuple(unknown)


def _object(text: str) -> dict[str, Any]:
    try:
        result = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not JSON: {error}") from error
    if not isinstance(result, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON object")
    return result


def _count(text: str) -> int:
    """A whole number from 1; `k`, `m` are decimal and `K`, `M` binary multiples, as in vLLM."""
    multiples = {"k": 10**3, "m": 10**6, "K": 2**10, "M": 2**20}
    digits, multiple = (text[:-1], multiples[text[-1]]) if text[-1:] in multiples else (text, 1)
    if not (digits.isascii() and digits.isdigit()) or int(digits) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1")
    return int(digits) * multiple
