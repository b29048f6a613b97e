"""`promptgroup size`: how many replicas a load takes, from a model, a GPU and what requests are like. No cluster."""

import argparse
import json
import math
import re
from collections.abc import Callable
from pathlib import Path

from promptgroup_operator import durations
from promptgroup_operator.cli import sheet
from promptgroup_operator.cli.answer import Question, answer
from promptgroup_operator.sizing import kv
from promptgroup_operator.sizing.estimate import MBU, MFU, Engine, replica
from promptgroup_operator.sizing.expectation import Replica, Workload
from promptgroup_operator.sizing.gpus import GPUS, Gpu, gpu
from promptgroup_operator.sizing.known import MODELS, SIXTEEN_BITS, Model, model
from promptgroup_operator.sizing.shape import ConfigError, Shape, shape

TURNS = 5
"""Turns of a session, the mean, when nobody says what history requests bring: between a question and an agent."""
TOKEN_BYTES = 4
"""Bytes of English text a token: what tokenizers of 100,000 and more entries make of it."""

EXAMPLE = """\
example:
  promptgroup size --model meta-llama/Llama-3.1-8B-Instruct --gpu H100-80GB \\
      --prompt-tokens 3000 --turn-tokens 100 --answer-tokens 200 --sessions 2000 --rate 100
"""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command and its flags."""
    parser = commands.add_parser(
        "size",
        help="how many replicas a load takes",
        description="How many replicas a load takes, what hit rate and TTFT to expect, and what if it is another.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _model_flags(parser)
    _load_flags(parser)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="default: %(default)s")
    parser.set_defaults(run=lambda arguments: _run(parser.error, arguments))


def _model_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model and GPUs")
    named = group.add_mutually_exclusive_group(required=True)
    named.add_argument("--model", metavar="NAME", help="a well-known model, by its Hugging Face name")
    named.add_argument("--config", type=Path, metavar="FILE", help="config.json of another one; needs --parameters")
    group.add_argument("--parameters", type=_billions, metavar="8B", help="parameters of the model of --config")
    group.add_argument("--active-parameters", type=_billions, metavar="3B", help="of a mixture of experts, for a token")
    group.add_argument(
        "--weights-gb", type=_positive, metavar="GB", help="size of the checkpoint (default: 2 bytes a parameter)"
    )
    group.add_argument("--gpu", required=True, metavar="NAME", help=", ".join(GPUS))
    group.add_argument(
        "--tp", type=_whole, default=1, metavar="N", help="GPUs of a replica: tensor parallel size (default: 1)"
    )
    group.add_argument("--kv-dtype", choices=tuple(kv.BYTES), default="auto", help="type of the KV cache (auto: bf16)")
    group.add_argument(
        "--gpu-memory-utilization", type=_share, default=kv.UTILIZATION, metavar="SHARE", help="default: %(default)s"
    )
    group.add_argument(
        "--kv-tokens", type=_whole, metavar="N", help="KV cache of a replica, as the engine reports it at its start"
    )
    group.add_argument(
        "--prefill-rate", type=_positive, metavar="N", help="prompt tokens a second of a replica, as measured"
    )


def _load_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("load", "lengths are means")
    prompt = group.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt-tokens", type=_whole, metavar="N", help="system prompt and tools")
    prompt.add_argument(
        "--prompt-file", type=Path, metavar="FILE", help=f"the system prompt; {TOKEN_BYTES} bytes count as a token"
    )
    group.add_argument("--turn-tokens", type=_positive, required=True, metavar="N", help="new in a request")
    group.add_argument("--answer-tokens", type=_positive, required=True, metavar="N")
    group.add_argument(
        "--history-tokens",
        type=_natural,
        metavar="N",
        help=f"of its session that a request repeats, first requests included (default: of {TURNS} turns)",
    )
    group.add_argument("--sessions", type=_positive, required=True, metavar="N", help="that live at the same time")
    group.add_argument("--rate", type=_positive, required=True, metavar="N", help="requests a second, of all sessions")
    group.add_argument(
        "--ttft", type=_seconds, default="300ms", metavar="DURATION", help="target, p95 (default: %(default)s)"
    )


def _run(refuse: Callable[[str], object], arguments: argparse.Namespace) -> int:
    try:
        found = answer(_question(arguments))
    except ValueError as error:
        refuse(str(error))
        return 2
    print({"table": sheet.table, "json": sheet.document}[arguments.output](found))
    return 0 if found.replicas is not None else 1


def _question(arguments: argparse.Namespace) -> Question:
    """What the flags ask.

    Raises:
        ValueError: with the flag, its value and a way out.
    """
    assumed: list[str] = []
    engine = Engine(
        _model(arguments, assumed),
        _gpu(arguments.gpu),
        arguments.tp,
        arguments.kv_dtype,
        arguments.gpu_memory_utilization,
    )
    workload = _workload(arguments, assumed)
    one, reported = _replica(engine, arguments, assumed)
    _check(workload, one)
    return Question(
        name=arguments.model or str(arguments.config),
        engine=engine,
        replica=one,
        workload=workload,
        target=arguments.ttft,
        reported=reported,
        assumed=tuple(assumed),
    )


def _model(arguments: argparse.Namespace, assumed: list[str]) -> Model:
    if arguments.model is not None:
        found = model(arguments.model)
        if found is None:
            raise ValueError(
                f"--model {arguments.model}: not among the models that are known; give its config.json with --config "
                f"and its --parameters, or one of {', '.join(MODELS)}"
            )
        shaped, parameters, active, weights = found.shape, found.parameters, found.active, found.weights
    else:
        if arguments.parameters is None:
            raise ValueError(
                f"--config {arguments.config} does not say how many parameters: add --parameters, as in 8B"
            )
        shaped = _shape(arguments.config)
        parameters = active = arguments.parameters
        weights = parameters * SIXTEEN_BITS
        if arguments.weights_gb is None:
            assumed.append("2 bytes a parameter; --weights-gb says otherwise")
    return Model(
        shaped,
        parameters,
        arguments.active_parameters or active,
        arguments.weights_gb * 1e9 if arguments.weights_gb is not None else weights,
    )


def _shape(config: Path) -> Shape:
    try:
        parsed = json.loads(config.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"--config {config}: {error}") from None
    try:
        return shape(parsed if isinstance(parsed, dict) else {})
    except ConfigError as error:
        raise ValueError(
            f"--config {config}: {error}; take a --model with the same layers, or a copy of the file mended by hand"
        ) from None


def _gpu(name: str) -> Gpu:
    try:
        return gpu(name)
    except KeyError as error:
        raise ValueError(f"--gpu {name}: take one of {error.args[0]}") from None


def _replica(engine: Engine, arguments: argparse.Namespace, assumed: list[str]) -> tuple[Replica, kv.Agreement | None]:
    """What a replica can do, and whether what its engine reports is as computed."""
    try:
        per_token = engine.token_bytes
    except ConfigError as error:
        raise ValueError(f"--tp {arguments.tp}: {error}; take a divisor or a multiple") from None
    reported = None
    if arguments.kv_tokens is not None:
        memory = engine.gpu.memory * engine.gpus
        reported = kv.compare(engine.kv_tokens, arguments.kv_tokens, per_token, memory)
    elif engine.kv_tokens:
        assumed.append(
            f"the KV cache gets {engine.utilization:.0%} of the memory less weights and {kv.RESERVE / 1e9:.1f} GB a "
            "GPU; --kv-tokens says what an engine reports"
        )
    else:
        raise ValueError(
            f"--gpu {arguments.gpu} --tp {arguments.tp}: {engine.model.weights / 1e9:,.0f} GB of weights leave no room "
            "for a KV cache; raise --tp or take larger GPUs"
        )
    if arguments.prefill_rate is None:
        assumed.append(f"prefill at {MFU:.0%} of the data sheet's FLOPS; --prefill-rate says what was measured")
    assumed.append(f"decoding at {MBU:.0%} of the data sheet's memory bandwidth")
    return replica(engine, arguments.kv_tokens, arguments.prefill_rate), reported


def _workload(arguments: argparse.Namespace, assumed: list[str]) -> Workload:
    prefix = arguments.prompt_tokens
    if prefix is None:
        try:
            size = arguments.prompt_file.stat().st_size
        except OSError as error:
            raise ValueError(f"--prompt-file {arguments.prompt_file}: {error.strerror}") from None
        prefix = math.ceil(size / TOKEN_BYTES)
        assumed.append(f"{TOKEN_BYTES} bytes of the prompt a token; --prompt-tokens says otherwise")
    history = arguments.history_tokens
    if history is None:
        history = (TURNS - 1) * (arguments.turn_tokens + arguments.answer_tokens)
        assumed.append(f"sessions of {TURNS} turns, the mean, geometric; --history-tokens says otherwise")
    return Workload(
        rate=arguments.rate,
        sessions=arguments.sessions,
        prefix=prefix,
        history=history,
        turn=arguments.turn_tokens,
        answer=arguments.answer_tokens,
    )


def _check(workload: Workload, one: Replica) -> None:
    """Raises ValueError for loads that cannot be."""
    longest = workload.prefix + one.held(workload.context)
    if longest > one.kv_tokens:
        raise ValueError(
            f"a request holds {longest:,.0f} tokens of KV, a replica has {one.kv_tokens:,}: shorten --prompt-tokens or "
            "--history-tokens, or raise --tp, or take --kv-dtype fp8"
        )
    answering = workload.answer * one.step
    if workload.rate * answering > workload.sessions:
        raise ValueError(
            f"--rate {workload.rate:g} --sessions {workload.sessions:g}: an answer takes {answering:.1f} s, so that "
            f"so many requests are of {workload.rate * answering:,.0f} sessions at least"
        )


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
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 on")
    return value


def _whole(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,12}", text, re.ASCII) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)


def _share(text: str) -> float:
    value = _positive(text)
    if value > 1:
        raise argparse.ArgumentTypeError(f"{text} is above 1: a share, as in {kv.UTILIZATION}")
    return value


def _billions(text: str) -> float:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([BM])", text, re.ASCII | re.IGNORECASE)
    if match is None or float(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of parameters: write 8B, 70.6B or 500M")
    return float(match[1]) * (1e9 if match[2].upper() == "B" else 1e6)


def _seconds(text: str) -> float:
    try:
        value = durations.parse(text).total_seconds()
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if value == 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value
