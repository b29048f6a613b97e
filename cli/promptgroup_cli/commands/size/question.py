"""Reads the question of `promptgroup size` from its flags and the files that they name."""

import argparse
import math
from dataclasses import replace
from pathlib import Path

from promptgroup_cli.base import bounded_json
from promptgroup_cli.base.bounded_json import JsonError
from promptgroup_cli.commands.size.answer import PREFILL, TIER, MeasuredFigure, PromptsFit, SizeQuestion
from promptgroup_cli.commands.size.flags import TOKEN_BYTES, TURNS
from promptgroup_cli.forecast import kv, measured
from promptgroup_cli.forecast.catalogue import MODELS, SIXTEEN_BITS, KnownModel, model
from promptgroup_cli.forecast.estimate import MBU, MFU, EngineEstimate, replica
from promptgroup_cli.forecast.forecast import ReplicaForecast, Workload
from promptgroup_cli.forecast.gpus import Gpu, gpu
from promptgroup_cli.forecast.measured import ReplicaFigures
from promptgroup_cli.forecast.model_config import ConfigError, ModelConfig, shape
from promptgroup_cli.forecast.reuse import ReuseCurve, TraceRequest, curve
from promptgroup_cli.reach import trace
from promptgroup_cli.reach.files import read_bytes, unreadable

MEASURED_BYTES = 1 << 16
CONFIG_BYTES = 4 << 20
"""Limit of a model's config.json, which has a few kilobytes."""


def from_flags(arguments: argparse.Namespace) -> SizeQuestion:
    """Return the question that the flags describe.

    Raises:
        ValueError: with the flag, its value and a way out.
    """
    assumed: list[str] = []
    figures = _measured(arguments.measured) if arguments.measured is not None else None
    used: list[MeasuredFigure] = []
    if figures is not None:
        if arguments.prefill_rate is None:
            figure = MeasuredFigure(PREFILL, figures.rate, figures.error, figures.between)
            used.append(_trusted(arguments.measured, figure, "--prefill-rate"))
            arguments.prefill_rate = figures.rate
        arguments.kv_tokens = arguments.kv_tokens or figures.kv_tokens or None
    engine = EngineEstimate(
        _model(arguments, assumed),
        _gpu(arguments.gpu),
        arguments.tp,
        arguments.kv_dtype,
        arguments.gpu_memory_utilization,
    )
    workload = _workload(arguments, assumed)
    one, reported = _replica(engine, arguments, assumed)
    prompts = PromptsFit(arguments.prompts, arguments.prompts * workload.prefix, one.kv_tokens)
    one = _beside_prompts(one, workload, arguments.prompts)
    _check(workload, one)
    if arguments.max_model_len is not None:
        _check_longest(arguments.max_model_len, workload, one)
    tiers = list(arguments.tier)
    if figures is not None and figures.tier is not None and tiers and not tiers[-1].measured:
        figure = MeasuredFigure(TIER, figures.tier.rate, figures.tier.error, figures.tier.between)
        used.append(_trusted(arguments.measured, figure, "--tier KIND=SIZE,BANDWIDTH,LATENCY"))
        tiers[-1] = tiers[-1].filled(figures.tier.rate * engine.token_bytes, figures.tier.latency)
    if not all(tier.measured for tier in tiers):
        assumed.append(
            "tiers copy at the rates and after the latencies of their kinds; --tier KIND=SIZE,BANDWIDTH,LATENCY takes "
            "measured ones"
        )
    return SizeQuestion(
        name=arguments.model or str(arguments.config),
        engine=engine,
        replica=one,
        workload=workload,
        target=arguments.ttft,
        reported=reported,
        assumed=tuple(assumed),
        tiers=tuple(tiers),
        reuse=_reuse(arguments.trace) if arguments.trace is not None else None,
        gpu_hour=arguments.gpu_hour,
        measured=tuple(used),
        longest=arguments.max_model_len,
        prompts=prompts,
    )


def _trusted(path: Path, figure: MeasuredFigure, flag: str) -> MeasuredFigure:
    """Return a measured figure.

    Raises:
        ValueError: it is not reliable; the flag sets another.
    """
    if not measured.is_sure(figure.error, figure.between):
        raise ValueError(
            f"--measured {path}: the rate of its {figure.name} is not to be trusted: {figure.sureness}; "
            f"measure an idle replica again with longer --tokens and more --repeat, or set {flag}"
        )
    return figure


def _measured(path: Path) -> ReplicaFigures:
    """Return the figures that `promptgroup probe` measured.

    Raises:
        ValueError: the file is something else.
    """
    try:
        return measured.read(bounded_json.parse(read_bytes(str(path), MEASURED_BYTES, f"--measured {path}")))
    except ValueError as error:
        raise ValueError(f"--measured {path}: {error}") from None


def _reuse(path: Path) -> ReuseCurve:
    """Return the reuse distances of a trace's requests.

    Raises:
        TraceError: it cannot be read.
    """
    return curve(TraceRequest(row.blocks, trace.BLOCK, row.prompt, row.output) for row in trace.read(path))


def _model(arguments: argparse.Namespace, assumed: list[str]) -> KnownModel:
    if arguments.model is not None:
        published = model(arguments.model)
        if published is None:
            raise ValueError(
                f"--model {arguments.model}: not a known model; give its config.json with --config "
                f"and its --parameters, or name one of {', '.join(MODELS)}"
            )
        shaped, parameters, active, weights = (
            published.shape,
            published.parameters,
            published.active,
            published.weights,
        )
    else:
        if arguments.parameters is None:
            raise ValueError(
                f"--config {arguments.config} does not have the number of parameters: add --parameters, as in 8B"
            )
        shaped = _shape(arguments.config)
        parameters = active = arguments.parameters
        weights = parameters * SIXTEEN_BITS
        if arguments.weights_gb is None:
            assumed.append("2 bytes per parameter; --weights-gb sets another size")
    return KnownModel(
        shaped,
        parameters,
        arguments.active_parameters or active,
        arguments.weights_gb * 1e9 if arguments.weights_gb is not None else weights,
    )


def _shape(config: Path) -> ModelConfig:
    try:
        parsed = bounded_json.parse(read_bytes(str(config), CONFIG_BYTES, f"--config {config}"))
    except JsonError as error:
        raise ValueError(f"--config {config}: {error}") from None
    try:
        return shape(parsed if isinstance(parsed, dict) else {})
    except ConfigError as error:
        raise ValueError(
            f"--config {config}: {error}; use a --model with the same layers, or a corrected copy of the file"
        ) from None


def _gpu(name: str) -> Gpu:
    try:
        return gpu(name)
    except KeyError as error:
        raise ValueError(f"--gpu {name}: not a known GPU; name one of {error.args[0]}") from None


def _replica(
    engine: EngineEstimate, arguments: argparse.Namespace, assumed: list[str]
) -> tuple[ReplicaForecast, kv.Agreement | None]:
    """Return a replica's speed and capacity, and whether the KV tokens that its engine reports are as computed."""
    try:
        per_token = engine.token_bytes
    except ConfigError as error:
        raise ValueError(f"--tp {arguments.tp}: {error}; use a divisor or a multiple") from None
    reported = None
    if arguments.kv_tokens is not None:
        memory = engine.gpu.memory * engine.gpus
        reported = kv.compare(engine.kv_tokens, arguments.kv_tokens, per_token, memory)
    elif engine.kv_tokens:
        assumed.append(
            f"the KV cache gets {engine.utilization:.0%} of the memory, less the weights and {kv.RESERVE / 1e9:.1f} GB "
            "per GPU; --kv-tokens takes the number that an engine reports"
        )
    else:
        raise ValueError(
            f"--gpu {arguments.gpu} --tp {arguments.tp}: {engine.model.weights / 1e9:,.0f} GB of weights leave no room "
            "for a KV cache; raise --tp or use larger GPUs"
        )
    if arguments.prefill_rate is None:
        assumed.append(f"prefill runs at {MFU:.0%} of the data sheet's FLOPS; --prefill-rate takes a measured rate")
    assumed.append(f"decoding runs at {MBU:.0%} of the data sheet's memory bandwidth")
    return replica(engine, arguments.kv_tokens, arguments.prefill_rate), reported


def _workload(arguments: argparse.Namespace, assumed: list[str]) -> Workload:
    prefix = arguments.prompt_tokens
    if prefix is None:
        try:
            size = arguments.prompt_file.stat().st_size
        except OSError as error:
            problem = unreadable(str(arguments.prompt_file), error)
            raise ValueError(f"--prompt-file {arguments.prompt_file}: {problem}") from None
        prefix = math.ceil(size / TOKEN_BYTES)
        assumed.append(f"a token has {TOKEN_BYTES} bytes of the prompt; --prompt-tokens takes a count")
    history = arguments.history_tokens
    if history is None:
        history = (TURNS - 1) * (arguments.turn_tokens + arguments.answer_tokens)
        assumed.append(f"a session has {TURNS} turns on average (geometric); --history-tokens takes another history")
    return Workload(
        rate=arguments.rate,
        sessions=arguments.sessions,
        prefix=prefix,
        history=history,
        turn=arguments.turn_tokens,
        answer=arguments.answer_tokens,
    )


def _beside_prompts(one: ReplicaForecast, workload: Workload, prompts: int) -> ReplicaForecast:
    """Return a replica whose KV cache holds the prompts of other groups as well.

    Raises:
        ValueError: they leave no capacity.
    """
    left = one.kv_tokens - (prompts - 1) * workload.prefix
    if left <= workload.prefix:
        raise ValueError(
            f"--prompts {prompts}: {prompts * workload.prefix:,} tokens of prompts leave no room in the "
            f"{one.kv_tokens:,} tokens of KV cache of a replica: keep each on fewer replicas (spec.placement), or use "
            "more hosts"
        )
    return replace(one, kv_tokens=left)


def _check(workload: Workload, one: ReplicaForecast) -> None:
    """Raise ValueError for loads that cannot be served."""
    longest = workload.prefix + one.held(workload.context)
    if longest > one.kv_tokens:
        raise ValueError(
            f"a request holds {longest:,.0f} tokens of KV, but a replica has {one.kv_tokens:,}: reduce "
            "--prompt-tokens or --history-tokens, raise --tp, or use --kv-dtype fp8"
        )
    answering = workload.answer * one.step
    if workload.rate * answering > workload.sessions:
        raise ValueError(
            f"--rate {workload.rate:g} --sessions {workload.sessions:g}: an answer takes {answering:.1f} s, so this "
            f"rate needs at least {workload.rate * answering:,.0f} sessions"
        )


def _check_longest(longest: int, workload: Workload, one: ReplicaForecast) -> None:
    """Raise ValueError for a longest request that no engine can serve, or that the load exceeds on average."""
    mean = workload.prefix + workload.context
    if mean > longest:
        raise ValueError(
            f"--max-model-len {longest}: a request has {mean:,.0f} tokens on average with its answer, and engines "
            "refuse longer ones: raise it, or reduce --history-tokens"
        )
    if one.held(longest) > one.kv_tokens:
        raise ValueError(
            f"--max-model-len {longest}: one such request holds {one.held(longest):,.0f} tokens of KV, and a replica "
            f"has {one.kv_tokens:,}: vLLM does not start so; reduce it, raise --tp, or use --kv-dtype fp8"
        )
