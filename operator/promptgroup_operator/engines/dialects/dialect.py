"""The differences between engines: each engine is one value of this type, in a file of its own. Does no I/O.

A field without a default has to be filled in for each engine, so that a new engine with a missing part is a type error.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from promptgroup_operator.api.prompt_group import EngineSpec, PromptGroupSpec
from promptgroup_operator.engines.dialects.metric_names import MetricNames
from promptgroup_operator.engines.dialects.pod_parts import ManualTier, PodParts

TLS_FOLDER = "/etc/promptgroup/tls"
"""Where an engine finds its certificate, as a Secret of type kubernetes.io/tls names the files."""
TLS_ARGS = (
    f"--ssl-certfile={TLS_FOLDER}/tls.crt",
    f"--ssl-keyfile={TLS_FOLDER}/tls.key",
    "--enable-ssl-refresh",  # reads the files again when they change
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The way in which one engine is started and read."""

    args: tuple[str, ...]
    """Arguments before the user's; `{model}` and `{port}` are filled in.

    They begin with the program where the image runs what it is given (`docker run IMAGE PROGRAM ...`).
    """
    health: str
    """Path that answers 200 once the engine can serve."""
    metrics: MetricNames
    """Names of its metrics."""
    batch_flag: str
    """Flag that bounds the tokens which one step of the scheduler computes."""
    parallel_flags: frozenset[str]
    """Flags, with `-` in the place of `_`, by which an engine has several processes, which share memory."""
    caching_off: str
    """The setting that turns prefix caching off, for messages."""
    caching_off_parts: PodParts
    """The parts of a pod that turn it off."""
    salted: frozenset[str]
    """The APIs, as routers name them, on which the engine takes `cache_salt`."""
    rank_flag: str
    """Flag that says how many data-parallel ranks the engine has, each with a KV cache; empty where it has none."""
    unranked: frozenset[str]
    """The APIs, as routers name them, for which its releases before `ranked_since` choose the rank themselves."""
    ranked_since: tuple[int, int]
    """The first release that heeds the header field of the rank on all APIs."""
    image: str
    """End of the name of the image repository whose tags are the releases of the engine."""
    tiers_since: tuple[int, int]
    """The first release that takes the KV tiers as they are rendered here."""
    tiers: Callable[[PromptGroupSpec], PodParts]
    """Renders `spec.cache` with `offload` or `pool`."""
    tiers_problem: Callable[[PromptGroupSpec], str]
    """Returns what keeps this engine's tiers from working, with the way out; empty if nothing does."""
    manual_setting: Callable[[EngineSpec], str]
    """Returns the first setting by which a user takes what `spec.cache` would set; empty if there is none."""
    manual_tier: Callable[[EngineSpec, str], ManualTier | None]
    """Returns the tier that such a setting sets up; None if it sets up none."""
    config: str = ""
    """Content of CONFIG_FILE."""
    state: str = ""
    """Path of its settings as a JSON object, for engines whose metrics do not say whether prefix caching is on."""
    state_off: str = ""
    """Key of that object that is true when it is off."""
    reset: str = ""
    """Path that empties the prefix cache of an idle engine; vLLM has it with VLLM_SERVER_DEV_MODE=1 alone."""
    resumes: bool = False
    """True if it tells the ids of tokens, and goes on with an answer whose ids it is given."""
    omits_zero: bool = False
    """True if usage omits the number of cached tokens where it is zero."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables of the engine's process."""
    key_env: str = ""
    """Variable that an engine takes the API key from; empty where it has none."""
    key_args: tuple[str, ...] = ()
    """Arguments by which it takes the key from that variable, where it does not by itself."""
    tls_args: tuple[str, ...] = ()
    """Arguments by which it serves TLS with the certificate in TLS_FOLDER; empty where it serves none."""


def arguments(dialect: Dialect, model: str, port: int, user: tuple[str, ...]) -> list[str]:
    """Return the engine container's arguments: the operator's, then the user's, so that the user's win."""
    return [*(arg.format(model=model, port=port) for arg in dialect.args), *user]


_TOKENS = re.compile(r"(?P<number>[0-9]{1,9}(?:\.[0-9]{1,9})?)(?P<unit>[kKmM]?)")
_UNITS = {"": 1, "k": 10**3, "K": 2**10, "m": 10**6, "M": 2**20}


def step_tokens(dialect: Dialect, args: Iterable[str]) -> int:
    """Return the bound that a command line sets to the tokens of one step; 0 when it sets none that can be read.

    As vLLM reads it: the last one wins, `_` is `-`, and a number may end in k (1000) or K (1024), m or M.
    """
    tokens, words = 0, iter(args)
    for word in words:
        flag, equals, value = word.partition("=")
        if flag.replace("_", "-") == dialect.batch_flag:
            match = _TOKENS.fullmatch(value if equals else next(words, ""))
            tokens = int(float(match["number"]) * _UNITS[match["unit"]]) if match is not None else 0
    return tokens


def is_parallel(dialect: Dialect, args: Iterable[str]) -> bool:
    """Return True if a command line gives an engine more than one process for its GPUs; `_` is `-` in a flag."""
    words = iter(args)
    values: dict[str, str] = {}
    for word in words:
        flag, equals, value = word.partition("=")
        flag = flag.replace("_", "-")
        if flag in dialect.parallel_flags:
            values[flag] = value if equals else next(words, "")
    return any(value.isdecimal() and int(value[:9]) > 1 for value in values.values())
