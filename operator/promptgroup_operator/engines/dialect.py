"""The differences between engines: arguments, probe path, metrics. One constant for each engine. Does no I/O."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from promptgroup_operator.api.prompt_group import EngineType
from promptgroup_operator.engines import metric_names
from promptgroup_operator.engines.metric_names import MetricNames

ADDRESS = "$(POD_IP)"
"""The pod's own address in an argument, as Kubernetes expands it: for engines that listen on the loopback by default.

Not 0.0.0.0, which a cluster of IPv6 alone cannot reach.
"""

TLS_FOLDER = "/etc/promptgroup/tls"
"""Where an engine finds its certificate, as a Secret of type kubernetes.io/tls names the files."""
_TLS_ARGS = (
    f"--ssl-certfile={TLS_FOLDER}/tls.crt",
    f"--ssl-keyfile={TLS_FOLDER}/tls.key",
    "--enable-ssl-refresh",  # reads the files again when they change
)

CONFIG_FILE = "/etc/promptgroup/engine.yaml"
"""Where an engine finds those settings that it takes from a file alone."""
CONFIG_ANNOTATION = "promptgroup.dev/engine-config"
"""Annotation of a pod that has the content of that file; a template may set it."""


@dataclass(frozen=True, slots=True)
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
    caching_off: str
    """The setting that turns prefix caching off, for messages."""
    config: str = ""
    """Content of CONFIG_FILE."""
    state: str = ""
    """Path of its settings as a JSON object, for engines whose metrics do not say whether prefix caching is on."""
    state_off: str = ""
    """Key of that object that is true when it is off."""
    reset: str = ""
    """Path that empties the prefix cache of an idle engine; vLLM has it with VLLM_SERVER_DEV_MODE=1 alone."""
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
    salted: frozenset[str] = frozenset()
    """The APIs, as routers name them, on which the engine takes `cache_salt`."""


VLLM = Dialect(
    # cached_tokens is in usage only when asked for; the proof of warmth needs it
    # and at SIGTERM it aborts what runs, unless it is told to wait: what came after the drain hook's last look
    args=("{model}", "--port={port}", "--enable-prompt-tokens-details", "--shutdown-timeout=25"),
    health="/health",
    metrics=metric_names.VLLM,
    batch_flag="--max-num-batched-tokens",
    caching_off="--no-enable-prefix-caching",
    reset="/reset_prefix_cache",
    key_env="VLLM_API_KEY",
    tls_args=_TLS_ARGS,
    # embeddings and their like ("by model") too; not forms
    salted=frozenset(("chat", "text", "messages", "responses", "by model")),
)
"""vLLM 0.32, `vllm serve` as the image's entrypoint."""

SGLANG = Dialect(
    args=(
        *("python3", "-m", "sglang.launch_server"),
        *("--model-path={model}", f"--host={ADDRESS}", "--port={port}", "--enable-cache-report", "--enable-metrics"),
    ),
    health="/health",
    metrics=metric_names.SGLANG,
    batch_flag="--chunked-prefill-size",
    caching_off="--disable-radix-cache",
    reset="/flush_cache",
    state="/server_info",
    state_off="disable_radix_cache",
    omits_zero=True,  # 0.5.23 says it, releases before it did not
    # else each probe has the engine generate a token, and fails behind a prefill that takes longer than it waits
    env={"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false"},
    key_env="ENGINE_API_KEY",
    key_args=("--api-key=$(ENGINE_API_KEY)",),
    tls_args=_TLS_ARGS,
    salted=frozenset(("chat", "text", "responses")),  # messages ignores it: seen with 0.5.23
)
"""SGLang 0.5, image lmsysorg/sglang."""

TENSORRT_LLM = Dialect(
    args=(
        *("trtllm-serve", "{model}", f"--host={ADDRESS}", "--port={port}"),
        f"--extra_llm_api_options={CONFIG_FILE}",
    ),
    health="/health",
    metrics=metric_names.TENSORRT_LLM,
    batch_flag="--max-num-tokens",
    caching_off="kv_cache_config.enable_block_reuse: false",
    # without the first there is no /prometheus/metrics, without the second no gauge on it
    config="return_perf_metrics: true\nenable_iter_perf_stats: true\n",
    salted=frozenset(("chat",)),  # ChatCompletionRequest alone has the field
)
"""TensorRT-LLM 1.x, image nvcr.io/nvidia/tensorrt-llm/release."""

DIALECTS: Mapping[EngineType, Dialect] = {
    EngineType.VLLM: VLLM,
    EngineType.SGLANG: SGLANG,
    EngineType.TENSORRT_LLM: TENSORRT_LLM,
}
"""Every engine that `spec.engine.type` can name."""


def arguments(dialect: Dialect, model: str, port: int, user: tuple[str, ...]) -> list[str]:
    """Return the engine container's arguments: the operator's, then the user's, so that the user's win."""
    return [*(arg.format(model=model, port=port) for arg in dialect.args), *user]


_TOKENS = re.compile(r"(?P<number>[0-9]{1,9}(?:\.[0-9]{1,9})?)(?P<unit>[kKmM]?)")
_UNITS = {"": 1, "k": 10**3, "K": 2**10, "m": 10**6, "M": 2**20}


def step_tokens(dialect: Dialect, args: Iterable[str]) -> int:
    """Return the bound that a command line sets to the tokens of one step; 0 when it sets none that can be read.

    As vLLM reads it: the last one wins, `_` is `-`, and a number may end in k (1000) or K (1024), m or M.
    """
    found, words = 0, iter(args)
    for word in words:
        flag, equals, value = word.partition("=")
        if flag.replace("_", "-") == dialect.batch_flag:
            match = _TOKENS.fullmatch(value if equals else next(words, ""))
            found = int(float(match["number"]) * _UNITS[match["unit"]]) if match is not None else 0
    return found


_PARALLEL = frozenset(
    {"--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size", "--data-parallel-size-local"}
    | {"--decode-context-parallel-size", "--prefill-context-parallel-size", "-tp", "-pp", "-dp", "-dcp", "-pcp"}  # vLLM
    | {"--tp", "--tp-size", "--pp-size", "--dp", "--dp-size", "--ep", "--ep-size", "--expert-parallel-size"}  # SGLang
    | {"--tp_size", "--pp_size", "--ep_size", "--cp_size", "--moe_expert_parallel_size"}  # TensorRT-LLM
)
"""Flags by which an engine has several processes, which talk through shared memory."""


def is_parallel(args: Iterable[str]) -> bool:
    """Return True if a command line gives an engine more than one process for its GPUs; `_` is `-` in a flag."""
    words = iter(args)
    flags = {flag.replace("_", "-") for flag in _PARALLEL}
    found: dict[str, str] = {}
    for word in words:
        flag, equals, value = word.partition("=")
        flag = flag.replace("_", "-")
        if flag in flags:
            found[flag] = value if equals else next(words, "")
    return any(value.isdecimal() and int(value[:9]) > 1 for value in found.values())
