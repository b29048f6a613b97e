"""The flags of `promptgroup size`, and the values that they take."""

import argparse
import math
import re
from collections.abc import Iterable
from pathlib import Path

from promptgroup_cli.base.errors import exit_statuses
from promptgroup_cli.base.flags import (
    ENGINES,
    add_output,
    add_prometheus_files,
    group_key,
    server_address,
    whole_number,
)
from promptgroup_cli.forecast import kv, tiers
from promptgroup_cli.forecast.gpus import GPUS
from promptgroup_operator.base import durations

EPILOG = exit_statuses(
    "a number of replicas keeps the target",
    "no number of replicas does",
    """\
  promptgroup size --model meta-llama/Llama-3.1-8B-Instruct --gpu H100-80GB \\
      --prompt-tokens 3000 --turn-tokens 100 --answer-tokens 200 --sessions 2000 --rate 100
""",
)

TURNS = 5
"""Mean turns of a session where no flag gives the history: between a single question and an agent."""
TOKEN_BYTES = 4
"""Bytes of English text per token, with vocabularies of 100,000 tokens and more."""

MOST_PROMPTS = 10_000
"""Largest number of prompts on a replica."""
MOST_GPUS = 1024
"""Largest tensor parallel size."""
MOST_TOKENS = 10**12
"""Largest number of tokens of a prompt or of a cache."""
DESCRIBED = ("gpu", "turn_tokens", "answer_tokens", "sessions", "rate")
"""Flags that describe a load that is not observed."""
OBSERVED = ("group", "revision", "kv_tokens", "prefill_rate", "prompt_tokens")
"""Flags that add to an observed load values that Prometheus does not have."""
DESCRIBED_ONLY = (
    *("tier", "trace", "measured", "gpu_hour", "gpu", "tp", "kv_dtype", "gpu_memory_utilization"),
    *("parameters", "active_parameters", "weights_gb"),
    *("turn_tokens", "answer_tokens", "history_tokens", "sessions", "rate", "prompts"),
)
"""Flags that do not affect an observed load."""
OBSERVED_ONLY = ("group", "revision", "engine", "prometheus_token_file", "prometheus_ca_file")
"""Flags that identify the source of an observed load."""
DEFAULTS = {
    "engine": ENGINES[0],
    "tp": 1,
    "kv_dtype": "auto",
    "gpu_memory_utilization": kv.UTILIZATION,
    "tier": [],
    "prompts": 1,
}
"""Values of flags that are not given, where they have one."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's description and flags."""
    parser.description = (
        "Compute how many replicas a load needs, the hit rate and the TTFT to expect, and the same for other loads."
    )
    parser.epilog = EPILOG
    _model_flags(parser)
    _load_flags(parser)
    _tier_flags(parser)
    _observed_flags(parser)
    add_output(parser)


def check(arguments: argparse.Namespace) -> None:
    """Raise ValueError if a flag is missing that the given ones need, or one is given that they make no use of."""
    way = "--from-prometheus" if arguments.from_prometheus else "--model" if arguments.model else "--config"
    missing = [
        item for item in (OBSERVED if arguments.from_prometheus else DESCRIBED) if getattr(arguments, item) is None
    ]
    if missing:
        raise ValueError(f"{way} also needs {_spelled(missing)}; `promptgroup size --help` lists the flags")
    unused = DESCRIBED_ONLY if arguments.from_prometheus else OBSERVED_ONLY
    idle = [item for item in unused if getattr(arguments, item) != DEFAULTS.get(item)]
    if arguments.model is not None and arguments.parameters is not None:
        idle.append("parameters")
    if idle and arguments.from_prometheus:
        raise ValueError(
            f"{way} sizes what was observed, which {_spelled(idle)} cannot change: remove that. The group's condition "
            "CacheTierUseful says what a KV tier would find; --model compares tiers for a load that flags describe"
        )
    if idle:
        raise ValueError(f"{way} makes no use of {_spelled(idle)}: remove that")


def _spelled(names: Iterable[str]) -> str:
    return ", ".join("--" + name.replace("_", "-") for name in names)


def _model_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model and GPUs")
    named = group.add_mutually_exclusive_group(required=True)
    named.add_argument("--model", metavar="NAME", help="size a known model, by its Hugging Face name")
    named.add_argument(
        "--from-prometheus",
        type=server_address,
        metavar="URL",
        help="size a running group, by what Prometheus observed",
    )
    named.add_argument(
        "--config", type=Path, metavar="FILE", help="size another model, by its config.json; needs --parameters"
    )
    group.add_argument(
        "--parameters", type=_billions, metavar="8B", help="number of parameters of the model of --config"
    )
    group.add_argument(
        "--active-parameters",
        type=_billions,
        metavar="3B",
        help="parameters that a token uses, of a mixture of experts",
    )
    group.add_argument(
        "--weights-gb", type=_positive, metavar="GB", help="size of the weights (default: 2 bytes per parameter)"
    )
    group.add_argument("--gpu", metavar="NAME", help=f"one of {', '.join(GPUS)}")
    group.add_argument(
        "--tp",
        type=whole_number(1, MOST_GPUS),
        default=1,
        metavar="N",
        help="GPUs per replica: tensor parallel size (default: 1)",
    )
    group.add_argument("--kv-dtype", choices=tuple(kv.BYTES), default="auto", help="type of the KV cache (auto: bf16)")
    group.add_argument(
        "--gpu-memory-utilization",
        type=_share,
        default=DEFAULTS["gpu_memory_utilization"],
        metavar="SHARE",
        help="share of the memory that the engine may use (default: %(default)s)",
    )
    group.add_argument(
        "--kv-tokens",
        type=whole_number(1, MOST_TOKENS),
        metavar="N",
        help="KV cache of a replica in tokens, as the engine logs it when it starts",
    )
    group.add_argument(
        "--max-model-len",
        type=whole_number(1, MOST_TOKENS),
        metavar="N",
        help="longest request that engines take, with its answer, as they are told: whether it fits, and what sessions "
        "that grow so long take",
    )
    group.add_argument(
        "--prefill-rate", type=_positive, metavar="N", help="measured prompt tokens per second of a replica"
    )


def _load_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("load", "all lengths are means")
    prompt = group.add_mutually_exclusive_group(required=True)
    prompt.add_argument(
        "--prompt-tokens",
        type=whole_number(1, MOST_TOKENS),
        metavar="N",
        help="tokens of the system prompt and the tools",
    )
    prompt.add_argument(
        "--prompt-file",
        type=Path,
        metavar="FILE",
        help=f"file with the system prompt; {TOKEN_BYTES} bytes count as a token",
    )
    group.add_argument(
        "--prompts",
        type=whole_number(1, MOST_PROMPTS),
        default=1,
        metavar="N",
        help="prompts of that length that every replica keeps warm: a host's own and those of its guests (default: 1)",
    )
    group.add_argument("--turn-tokens", type=_positive, metavar="N", help="new tokens in a request")
    group.add_argument("--answer-tokens", type=_positive, metavar="N", help="tokens of an answer")
    group.add_argument(
        "--history-tokens",
        type=_natural,
        metavar="N",
        help=f"earlier tokens of its session that a request repeats, first requests included (default: those of "
        f"a session with {TURNS} turns)",
    )
    group.add_argument("--sessions", type=_positive, metavar="N", help="sessions that are live at the same time")
    group.add_argument("--rate", type=_positive, metavar="N", help="requests per second of all sessions")
    group.add_argument(
        "--ttft",
        type=_seconds,
        default="300ms",
        metavar="DURATION",
        help="target of the 95th percentile (default: %(default)s)",
    )


def _tier_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("KV tiers and cost", "what more memory for KV would change, and what it costs")
    group.add_argument(
        "--tier",
        type=_tier,
        action="append",
        default=[],
        metavar="KIND=SIZE",
        help=f"add a tier behind the GPUs' memory, the nearest first: {', '.join(tiers.KINDS)} (sizes of dram, c2c and "
        "nvme are those of each replica); measured figures may follow, as in tcp=2TiB,3GB/s,15ms",
    )
    group.add_argument(
        "--measured",
        type=Path,
        metavar="FILE",
        help="output of `promptgroup probe -o json`: its prefill rate, KV cache and figures of the last --tier stand "
        "where no flag gives them; figures that are not sure are refused",
    )
    group.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="requests in Mooncake's format: add the hit rates that the reuse of their tokens allows",
    )
    group.add_argument(
        "--gpu-hour", type=_positive, metavar="PRICE", help="price of one GPU for an hour, in any currency"
    )


def _tier(text: str) -> tiers.Tier:
    try:
        return tiers.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _observed_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "running group",
        "also needs --prompt-tokens, --kv-tokens and --prefill-rate; the last two are in the group's PromptRoute",
    )
    group.add_argument("--group", type=group_key, metavar="NAMESPACE/NAME", help="PromptGroup to size")
    group.add_argument(
        "--revision", type=_revision, metavar="HEX", help="revision, as `kubectl get promptgroups` shows it"
    )
    group.add_argument(
        "--engine", choices=ENGINES, default=ENGINES[0], help="spec.engine.type of the group (default: %(default)s)"
    )
    add_prometheus_files(group)


def _positive(text: str) -> float:
    value = _natural(text)
    if value == 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def _natural(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return value


def _share(text: str) -> float:
    value = _positive(text)
    if value > 1:
        raise argparse.ArgumentTypeError(f"{text} is above 1: write a share, as in {kv.UTILIZATION}")
    return value


def _billions(text: str) -> float:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([BM])", text, re.ASCII | re.IGNORECASE)
    if match is None or float(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of parameters: write 8B, 70.6B or 500M")
    return float(match[1]) * (1e9 if match[2].upper() == "B" else 1e6)


def _seconds(text: str) -> float:
    try:
        value = durations.parse(text).total_seconds()
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if value == 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def _revision(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{8}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r} is not a short fingerprint: write 8 hexadecimal digits")
    return text
