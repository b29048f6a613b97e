"""KV tiers that a user's own settings of an engine set up, without `spec.cache`. Does no I/O.

engine        what sets a tier up                                          its size, where that is said
vLLM          --kv-transfer-config, as JSON or dotted; --kv-offloading-*   --kv-offloading-size, cpu_bytes_to_use
SGLang        --enable-hierarchical-cache, --enable-lmcache, --hicache-*   --hicache-size
TensorRT-LLM  kv_cache_config.host_cache_size in its file of settings      the same

A connector of vLLM that hands KV from a prefill engine to a decode engine keeps none, so it is no tier. It takes the
place of the one connector that an engine has all the same.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from promptgroup_operator.api.prompt_group import EngineSpec, EngineType
from promptgroup_operator.engines.dialect import CONFIG_ANNOTATION

HANDS_OVER = frozenset(
    {
        *("NixlConnector", "NixlPullConnector", "NixlPushConnector"),
        *("P2pNcclConnector", "MooncakeConnector", "MoRIIOConnector"),
    }
)
"""Connectors of vLLM by which a prefill engine gives KV to a decode engine."""

_TRANSFER = "--kv-transfer-config"
_SETS_UP: Mapping[EngineType, re.Pattern[str]] = {
    EngineType.VLLM: re.compile(rf"{_TRANSFER}(\..+)?|--kv-offloading-(size|backend)"),
    EngineType.SGLANG: re.compile(r"--(enable-hierarchical-cache|enable-lmcache|hicache-[a-z-]+)"),
}
_HOST_CACHE = re.compile(r"host_cache_size[\"']?\s*:\s*([0-9_]{1,20})", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class HandSetTier:
    """A tier that is set up by hand."""

    setting: str
    """The flag or setting that does it."""
    size: int = 0
    """Bytes of main memory that it takes in each replica; 0 where the settings do not say."""


def connector(engine: EngineSpec) -> str:
    """Return the first setting by which a user takes what `spec.cache` would set; empty if there is none."""
    pattern = _SETS_UP.get(engine.type)
    if pattern is None:
        return "kv_cache_config.host_cache_size" if _host_cache(engine) else ""
    return next((flag for flag in map(flag_of, engine.args) if pattern.fullmatch(flag)), "")


def tier(engine: EngineSpec) -> HandSetTier | None:
    """Return the tier that a user's settings set up; None if they set up none."""
    setting = connector(engine)
    if not setting:
        return None
    if engine.type is EngineType.TENSORRT_LLM:
        return HandSetTier(setting, _host_cache(engine))
    given = dict(_given(engine.args))
    if engine.type is EngineType.SGLANG:
        on = "--enable-hierarchical-cache" in given
        return HandSetTier(setting, int(_float(given.get("--hicache-size")) * 10**9) * ranks(engine.args) if on else 0)
    copies = number(engine.args, ("--data-parallel-size", "-dp"))
    if "--kv-offloading-size" in given:
        # with LMCache as its backend, the memory is that of LMCache's server
        native = given.get("--kv-offloading-backend", "native") == "native"
        size = int(_float(given["--kv-offloading-size"]) * 2**30) * copies if native else 0
        return HandSetTier("--kv-offloading-size", size)
    config = _transfer_config(engine.args)
    names = list(_connectors(config))
    if names and set(names) <= HANDS_OVER:
        return None
    own = config.get("kv_connector_extra_config")
    extra: Mapping[str, Any] = own if isinstance(own, Mapping) else {}
    told = extra.get("cpu_bytes_to_use")
    known = names == ["OffloadingConnector"] and isinstance(told, int | str)
    size = int(_float(str(told))) * copies if known else 0
    return HandSetTier(setting, size)


def number(args: Sequence[str], names: Iterable[str]) -> int:
    """Return the number that a flag has; 1 where it is not given. As in engines, the last one wins."""
    known, found, words = frozenset(names), 1, iter(args)
    for word in words:
        if flag_of(word) in known:
            value = word.partition("=")[2] or next(words, "")
            found = int(value) if re.fullmatch("[1-9][0-9]{0,4}", value) else 1
    return found


def ranks(args: Sequence[str]) -> int:
    """Return the ranks of SGLang that allocate main memory for KV, each its own."""
    count = number(args, ("--tp", "--tp-size", "--tensor-parallel-size"))
    count *= number(args, ("--pp", "--pp-size", "--pipeline-parallel-size"))
    if "--enable-dp-attention" not in map(flag_of, args):
        count *= number(args, ("--dp", "--dp-size", "--data-parallel-size"))
    return count


def flag_of(arg: str) -> str:
    """Return the flag of an argument, as engines spell it."""
    return arg.partition("=")[0].replace("_", "-")


def _given(args: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each flag with its value; the value is empty where none follows."""
    for index, word in enumerate(args):
        if word.startswith("-"):
            _, equals, value = word.partition("=")
            follows = args[index + 1] if index + 1 < len(args) else ""
            yield flag_of(word), value if equals else "" if follows.startswith("-") else follows


def _transfer_config(args: Sequence[str]) -> dict[str, Any]:
    """Return the connector's settings, whether they are JSON or dotted; what cannot be read is left out."""
    config: dict[str, Any] = {}
    for flag, value in _given(args):
        if flag == _TRANSFER:
            try:
                read = json.loads(value)
            except (ValueError, RecursionError):
                continue
            config |= read if isinstance(read, dict) else {}
        elif flag.startswith(f"{_TRANSFER}."):
            *folders, key = flag.removeprefix(f"{_TRANSFER}.").replace("-", "_").split(".")
            place = config
            for folder in folders:
                inner = place.get(folder)
                place[folder] = inner if isinstance(inner, dict) else {}
                place = place[folder]
            place[key] = value
    return config


def _connectors(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the connectors' names; those of MultiConnector in its place."""
    name = config.get("kv_connector")
    if name != "MultiConnector":
        if isinstance(name, str) and name:
            yield name
        return
    extra = config.get("kv_connector_extra_config")
    parts = extra.get("connectors") if isinstance(extra, Mapping) else None
    for part in parts if isinstance(parts, list) else []:
        inner = part.get("kv_connector") if isinstance(part, Mapping) else None
        yield inner if isinstance(inner, str) else ""


def _host_cache(engine: EngineSpec) -> int:
    """Return the bytes that TensorRT-LLM's file of settings gives to the host's memory, as a template has it."""
    metadata = engine.template.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    text = annotations.get(CONFIG_ANNOTATION) if isinstance(annotations, Mapping) else None
    found = _HOST_CACHE.search(text) if isinstance(text, str) else None
    return int(found[1].replace("_", "") or 0) if found else 0


def _float(text: str | None) -> float:
    return float(text) if text and _NUMBER.fullmatch(text) else 0.0
