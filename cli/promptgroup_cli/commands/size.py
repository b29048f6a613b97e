"""`promptgroup size`: how many replicas a load takes, from what requests are like, or as observed."""

import argparse
import json
import math
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from promptgroup_cli.forecast import kv
from promptgroup_cli.forecast.catalogue import MODELS, SIXTEEN_BITS, KnownModel, model
from promptgroup_cli.forecast.estimate import MBU, MFU, EngineEstimate, replica
from promptgroup_cli.forecast.forecast import ReplicaForecast, Workload
from promptgroup_cli.forecast.gpus import Gpu, gpu
from promptgroup_cli.forecast.model_config import ConfigError, ModelConfig, shape
from promptgroup_cli.reach import flags, size_prometheus
from promptgroup_cli.reach.flags import TOKEN_BYTES, TURNS
from promptgroup_cli.reach.size_answer import MOST, SizeQuestion, answer
from promptgroup_cli.render import size_observed, size_output

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
    flags.add(parser)
    parser.set_defaults(run=lambda arguments: _run(parser.error, arguments))


def _run(refuse: Callable[[str], object], arguments: argparse.Namespace) -> int:
    try:
        flags.check(arguments)
        if arguments.from_prometheus:
            seen = size_observed.running(size_prometheus.load(arguments, datetime.now(UTC)), arguments.ttft, MOST)
            print({"table": size_observed.table, "json": size_observed.document}[arguments.output](seen))
            return 0 if seen.needed is not None else 1
        found = answer(_question(arguments))
    except ValueError as error:
        refuse(str(error))
        return 2
    print({"table": size_output.table, "json": size_output.document}[arguments.output](found))
    return 0 if found.replicas is not None else 1


def _question(arguments: argparse.Namespace) -> SizeQuestion:
    """What the flags ask.

    Raises:
        ValueError: with the flag, its value and a way out.
    """
    assumed: list[str] = []
    engine = EngineEstimate(
        _model(arguments, assumed),
        _gpu(arguments.gpu),
        arguments.tp,
        arguments.kv_dtype,
        arguments.gpu_memory_utilization,
    )
    workload = _workload(arguments, assumed)
    one, reported = _replica(engine, arguments, assumed)
    _check(workload, one)
    return SizeQuestion(
        name=arguments.model or str(arguments.config),
        engine=engine,
        replica=one,
        workload=workload,
        target=arguments.ttft,
        reported=reported,
        assumed=tuple(assumed),
    )


def _model(arguments: argparse.Namespace, assumed: list[str]) -> KnownModel:
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
    return KnownModel(
        shaped,
        parameters,
        arguments.active_parameters or active,
        arguments.weights_gb * 1e9 if arguments.weights_gb is not None else weights,
    )


def _shape(config: Path) -> ModelConfig:
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


def _replica(
    engine: EngineEstimate, arguments: argparse.Namespace, assumed: list[str]
) -> tuple[ReplicaForecast, kv.Agreement | None]:
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


def _check(workload: Workload, one: ReplicaForecast) -> None:
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
