"""The differences between engines: each engine is one value of this type, in a file of its own. Does no I/O.

A field without a default must be set for every engine, so that a missing part of a new engine is a type error.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from promptgroup_operator.adapters.identity import Adapter
from promptgroup_operator.api.loaded_weights import EngineAdaptersSpec
from promptgroup_operator.api.prompt_group import EngineSpec, PromptGroupSpec
from promptgroup_operator.engines.dialects.metric_names import MetricNames
from promptgroup_operator.engines.dialects.pod_parts import ManualTier, PodParts

TLS_FOLDER = "/etc/promptgroup/tls"
"""Folder of an engine's certificate, with the file names of a Secret of type kubernetes.io/tls."""
TLS_ARGS = (
    f"--ssl-certfile={TLS_FOLDER}/tls.crt",
    f"--ssl-keyfile={TLS_FOLDER}/tls.key",
    "--enable-ssl-refresh",  # reads the files again when they change
)


@dataclass(frozen=True, slots=True)
class AdapterForm:
    """The way in which an engine serves LoRA adapters."""

    args: Callable[[EngineAdaptersSpec | None, Adapter | None], tuple[str, ...]]
    """Returns the arguments for `spec.engine.adapters`, and for an adapter that is loaded at the start."""
    flags: frozenset[str]
    """Flags, with `-` instead of `_`, that these arguments have: another one of a user would replace them."""
    run_time: Mapping[str, str]
    """Environment variables with which it loads and unloads adapters while it runs."""
    load: str
    """Path to load one, with `lora_name` and `lora_path`."""
    unload: str
    """Path to unload one, with `lora_name`."""
    model: str
    """The model that requests name for an adapter, with the placeholders `{model}` and `{adapter}`: the name under
    which the model is served, and that under which the adapter is loaded."""
    apis: frozenset[str] | None
    """The APIs, as routers name them, on which it applies an adapter that a request names; None for all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The start-up arguments, metrics and other properties of one engine."""

    args: tuple[str, ...]
    """Arguments before the user's, with the placeholders `{model}` and `{port}`.

    They begin with the program if the image has no entrypoint for it (`docker run IMAGE PROGRAM ...`).
    """
    served_name: str
    """Argument, with the placeholder `{model}`, that sets the name under which a model from a path is served."""
    health: str
    """Path that returns 200 once the engine can serve."""
    metrics: MetricNames
    """Names of its metrics."""
    batch_flag: str
    """Flag that limits the tokens computed in one scheduler step."""
    sequences_flag: str
    """Flag that limits the requests that run at once."""
    parallel_flags: frozenset[str]
    """Flags, with `-` instead of `_`, by which an engine has several processes, which share memory."""
    caching_off: str
    """The setting that turns prefix caching off, for messages."""
    caching_off_parts: PodParts
    """The parts of a pod that turn prefix caching off."""
    salted: frozenset[str]
    """The APIs, as routers name them, on which the engine takes `cache_salt`."""
    rank_flag: str
    """Flag that sets the number of data-parallel ranks, each with a KV cache; empty where it is not supported."""
    unranked: frozenset[str]
    """The APIs, as routers name them, for which its releases before `ranked_since` choose the rank themselves."""
    ranked_since: tuple[int, int]
    """The first release that respects the header field of the rank on all APIs."""
    adapters: AdapterForm | None
    """The way in which it serves LoRA adapters; None where that is not supported."""
    image: str
    """End of the name of the image repository whose tags are the releases of the engine."""
    tiers_since: tuple[int, int]
    """The first release that supports the KV tier settings rendered here."""
    tiers: Callable[[PromptGroupSpec], PodParts]
    """Renders `spec.cache` with `offload` or `pool`."""
    tiers_problem: Callable[[PromptGroupSpec], str]
    """Returns the problem that prevents this engine's tiers from working, with the remedy; empty without one."""
    manual_setting: Callable[[EngineSpec], str]
    """Returns the first setting of a user that conflicts with those of `spec.cache`; empty if there is none."""
    manual_tier: Callable[[EngineSpec, str], ManualTier | None]
    """Returns the tier that such a setting configures; None if it configures none."""
    split_setting: Callable[[Sequence[str]], str]
    """Returns the argument that makes an engine compute prompts or answers alone; empty if it does both."""
    config: str = ""
    """Content of CONFIG_FILE."""
    state: str = ""
    """Path of its settings as a JSON object, for engines whose metrics do not report if prefix caching is on."""
    state_off: str = ""
    """Key of that object that is true when prefix caching is off."""
    reset: str = ""
    """Path that empties the prefix cache of an idle engine; vLLM serves it only with VLLM_SERVER_DEV_MODE=1."""
    resumes: bool = False
    """True if it returns token ids, and can continue an answer from token ids in the request."""
    omits_zero: bool = False
    """True if usage omits the number of cached tokens where it is zero."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the engine's process."""
    key_env: str = ""
    """Environment variable with the API key; empty where it is not supported."""
    key_args: tuple[str, ...] = ()
    """Arguments that make it read the key from that variable, if it does not by default."""
    node_args: tuple[str, ...] = ()
    """Arguments of all processes of a replica on several nodes, with the placeholder `{nodes}`; empty where that is not
    supported. The LeaderWorkerSet controller sets the environment variables in them."""
    worker_args: tuple[str, ...] = ()
    """Further arguments of those that do not serve."""
    split_flags: tuple[tuple[str, ...], ...] = ()
    """Names of the flag of each kind of parallelism by which a model is split over nodes."""
    tls_args: tuple[str, ...] = ()
    """Arguments that make it serve TLS with the certificate in TLS_FOLDER; empty where TLS is not supported."""


def requested_model(dialect: Dialect, model: str, adapter: Adapter | None) -> str:
    """Return the model that requests to an engine name: the one that it serves, or an adapter for it."""
    if adapter is None or dialect.adapters is None:
        return model
    return dialect.adapters.model.format(model=model, adapter=adapter.served)


def arguments(dialect: Dialect, model: str, port: int, user: tuple[str, ...]) -> list[str]:
    """Return the engine container's arguments: the operator's, then the user's, which take precedence."""
    return [*(arg.format(model=model, port=port) for arg in dialect.args), *user]


_NUMBER = re.compile(r"(?P<number>[0-9]{1,9}(?:\.[0-9]{1,9})?)(?P<unit>[kKmM]?)")
_UNITS = {"": 1, "k": 10**3, "K": 2**10, "m": 10**6, "M": 2**20}


def step_tokens(dialect: Dialect, args: Iterable[str]) -> int:
    """Return the limit that a command line sets to the tokens of one step; 0 when it sets none that can be parsed."""
    return _limit(dialect.batch_flag, args)


def max_sequences(dialect: Dialect, args: Iterable[str]) -> int:
    """Return the limit that it sets to the requests that run at once; 0 when it sets none that can be parsed."""
    return _limit(dialect.sequences_flag, args)


def _limit(limit_flag: str, args: Iterable[str]) -> int:
    """Return the number that a command line gives for a flag, or 0.

    It is parsed as by vLLM: the last flag wins, `_` equals `-`, and a number may end in k (1000) or K (1024), m or M.
    """
    limit, words = 0, iter(args)
    for word in words:
        flag, equals, value = word.partition("=")
        if flag.replace("_", "-") == limit_flag:
            match = _NUMBER.fullmatch(value if equals else next(words, ""))
            limit = int(float(match["number"]) * _UNITS[match["unit"]]) if match is not None else 0
    return limit


def is_parallel(dialect: Dialect, args: Iterable[str]) -> bool:
    """Return True if a command line sets more than one process for an engine's GPUs; `_` equals `-` in a flag."""
    words = iter(args)
    values: dict[str, str] = {}
    for word in words:
        flag, equals, value = word.partition("=")
        flag = flag.replace("_", "-")
        if flag in dialect.parallel_flags:
            values[flag] = value if equals else next(words, "")
    return any(value.isdecimal() and int(value[:9]) > 1 for value in values.values())
