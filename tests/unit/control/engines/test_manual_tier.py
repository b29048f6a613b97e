"""Which settings of a user set up tiers, and what they say of their size."""

import json

import pytest

from promptgroup_operator.engines.dialects.pod_parts import CONFIG_ANNOTATION, ManualTier
from promptgroup_operator.engines.dialects.registry import DIALECTS
from promptgroup_operator.engines.tiers import manual_tier
from support.builders import spec

GIB = 2**30


def engine(*args, of="vLLM", **fields):
    return spec(engine={"type": of, "image": "engine", "args": list(args), **fields}).engine


def transfer(name, **extra):
    return "--kv-transfer-config=" + json.dumps({"kv_connector": name, "kv_connector_extra_config": extra})


def settings(text):
    return {"template": {"metadata": {"annotations": {CONFIG_ANNOTATION: text}}}}


JSON = "--kv-transfer-config"


def setting(engine):
    return DIALECTS[engine.type].manual_setting(engine)


TIERS = {
    "vLLM's memory": (engine("--kv-offloading-size=3"), ("--kv-offloading-size", 3 * GIB)),
    "in two words, with underscores": (engine("--kv_offloading_size", "1.5"), ("--kv-offloading-size", 3 * GIB // 2)),
    "of each data-parallel engine": (
        engine("--kv-offloading-size=3", "--data-parallel-size=2"),
        ("--kv-offloading-size", 6 * GIB),
    ),
    "whose memory is LMCache's": (
        engine("--kv-offloading-size=3", "--kv-offloading-backend=lmcache"),
        ("--kv-offloading-size", 0),
    ),
    "a size that is none": (engine("--kv-offloading-size", "--enforce-eager"), ("--kv-offloading-size", 0)),
    "the offloading connector": (engine(transfer("OffloadingConnector", cpu_bytes_to_use=GIB)), (JSON, GIB)),
    "a size that nests": (
        engine(transfer("OffloadingConnector", cpu_bytes_to_use=[[GIB]])),
        (JSON, 0),
    ),
    "JSON in the next word": (engine(JSON, '{"kv_connector":"LMCacheMPConnector"}'), (JSON, 0)),
    "what cannot be read": (engine(f"{JSON}={{"), (JSON, 0)),
    "nothing that can be read": (engine(f"{JSON}=" + "[" * 5000), (JSON, 0)),
    "a dotted name": (engine(f"{JSON}.kv_connector", "LMCacheConnectorV1"), (f"{JSON}.kv-connector", 0)),
    "a dotted size": (
        engine(
            f"{JSON}.kv_connector=OffloadingConnector", f"{JSON}.kv_connector_extra_config.cpu_bytes_to_use=1073741824"
        ),
        (f"{JSON}.kv-connector", GIB),
    ),
    "several, one of which keeps": (
        engine(transfer("MultiConnector", connectors=[{"kv_connector": each} for each in ("NixlConnector", "X")])),
        (JSON, 0),
    ),
    "HiCache": (
        engine("--enable-hierarchical-cache", "--hicache-size=8", "--tp=2", of="SGLang"),
        ("--enable-hierarchical-cache", 16 * 10**9),
    ),
    "HiCache by a ratio": (engine("--hicache-ratio=2", of="SGLang"), ("--hicache-ratio", 0)),
    "TensorRT-LLM's memory": (
        engine(of="TensorRTLLM", **settings("kv_cache_config: {host_cache_size: 1_073_741_824}")),
        ("kv_cache_config.host_cache_size", GIB),
    ),
}


@pytest.mark.parametrize("case", TIERS)
def test_tiers_that_are_set_up_by_hand(case):
    given, expected = TIERS[case]
    assert manual_tier(given) == ManualTier(*expected)


NONE = {
    "nothing": engine("--max-model-len=4096"),
    "between prefill and decode": engine(transfer("NixlConnector")),
    "the same, dotted": engine(f"{JSON}.kv_connector", "NixlConnector"),
    "several of them": engine(transfer("MultiConnector", connectors=[{"kv_connector": "P2pNcclConnector"}])),
    "no memory of the host": engine(of="TensorRTLLM", **settings("kv_cache_config: {host_cache_size: 0}")),
    "settings of another form": engine(of="TensorRTLLM", template={"metadata": {"annotations": [1]}}),
}


@pytest.mark.parametrize("case", NONE)
def test_what_is_no_tier(case):
    assert manual_tier(NONE[case]) is None


def test_what_hands_over_takes_the_connector_all_the_same():
    assert setting(engine(transfer("NixlConnector"))) == JSON
    assert setting(engine("--max-model-len=4096")) == ""
