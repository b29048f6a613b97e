"""What vLLM gets for its tiers, which of a user's settings set some up, and what these say of their size."""

import json

import pytest

from promptgroup_operator.api.prompt_group import EngineType
from promptgroup_operator.engines.dialects import pod_parts
from promptgroup_operator.engines.dialects.pod_parts import ManualTier
from promptgroup_operator.engines.dialects.registry import DIALECTS
from promptgroup_operator.engines.dialects.vllm import LEFT_BEHIND
from promptgroup_operator.engines.tiers import manual_tier
from support.builders import spec
from support.kvtiers import LMCACHE, MEMORY, MOONCAKE, VOLUME, parts

GIB = 2**30


def engine(*args):
    return spec(engine={"image": "engine", "args": list(args)}).engine


def transfer(name, **extra):
    return "--kv-transfer-config=" + json.dumps({"kv_connector": name, "kv_connector_extra_config": extra})


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
}


@pytest.mark.parametrize("case", NONE)
def test_what_is_no_tier(case):
    assert manual_tier(NONE[case]) is None


def test_what_hands_over_takes_the_connector_all_the_same():
    assert setting(engine(transfer("NixlConnector"))) == JSON
    assert setting(engine("--max-model-len=4096")) == ""


def connector(made):
    (flag,) = (each for each in made.args if each.startswith("--kv-transfer-config="))
    return json.loads(flag.partition("=")[2])


@pytest.mark.parametrize(
    ("args", "size"), [([], "64"), (["--data-parallel-size=2"], "32"), (["--data_parallel_size", "3"], "21.3333")]
)
def test_vllm_counts_its_memory_in_gib_for_each_data_parallel_engine(args, size):
    assert parts(MEMORY, args=args) == pod_parts.PodParts(
        args=(f"--kv-offloading-size={size}",), shared_memory="65Gi", left_behind=LEFT_BEHIND
    )


def test_a_volume_of_vllm_is_a_secondary_tier_in_a_folder_of_its_own_for_each_engine():
    made = parts(VOLUME)
    config = connector(made)
    assert (config["kv_connector"], config["kv_role"], made.claim) == ("OffloadingConnector", "kv_both", "kv")
    assert made.shared_memory == "65Gi"
    folder = f"{pod_parts.FOLDER}/{pod_parts.namespace(spec(cache=VOLUME))}"
    assert config["kv_connector_extra_config"] == {
        "cpu_bytes_to_use": 64 << 30,
        "spec_name": "TieringOffloadingSpec",
        "secondary_tiers": [{"type": "fs", "root_dir": folder}],
    }


def test_lmcache_has_time_outs_under_which_a_dead_server_kills_no_engine():
    made = parts(LMCACHE)
    assert connector(made)["kv_connector_extra_config"] == {
        "lmcache.mp.host": "tcp://kv.pools",
        "lmcache.mp.port": 5555,
        "lmcache.mp.mq_timeout": 5,
        "lmcache.mp.heartbeat_interval": 2,
    }
    assert "--disable-hybrid-kv-cache-manager" in made.args
    assert made.env == {"LMCACHE_TRACK_USAGE": "false", "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "60"}
    assert made.awaits == ("kv.pools", "5555")


def test_mooncake_is_told_in_a_file_and_its_keys_begin_with_the_engines_settings():
    made = parts({"pool": MOONCAKE["pool"] | {"transport": "RDMA"}})
    assert connector(made)["kv_connector_extra_config"] == {"cache_prefix": pod_parts.namespace(spec())}
    told = json.loads(made.config)
    assert (told["master_server_address"], told["protocol"]) == ("kv.pools:50051", "rdma")
    assert told["global_segment_size"] == 0
    assert made.awaits == ("kv.pools", "50051")


def role(name, connector="NixlConnector"):
    return f'{JSON}={{"kv_connector":"{connector}","kv_role":"{name}"}}'


SPLIT = {
    "a prefill engine": [role("kv_producer")],
    "a decode engine": [JSON, '{"kv_connector":"P2pNcclConnector","kv_role":"kv_consumer"}'],
    "dotted": [f"{JSON}.kv_connector=NixlConnector", f"{JSON}.kv-role", "kv_producer"],
    "beside a tier": [
        transfer("MultiConnector", connectors=[{"kv_connector": "NixlConnector", "kv_role": "kv_consumer"}])
    ],
}
WHOLE = {
    "nothing": [],
    "an engine that sends and receives": [role("kv_both")],
    "no role": [transfer("NixlConnector")],
    "a tier that is only written to": [role("kv_producer", "LMCacheConnectorV1")],
    "what cannot be read": [f"{JSON}=[["],
    "parts that are none": [transfer("MultiConnector", connectors=[1, {"kv_role": "kv_producer"}])],
}


@pytest.mark.parametrize("case", SPLIT)
def test_one_half_of_a_pair_is_known_by_its_role(case):
    assert DIALECTS[EngineType.VLLM].split_setting(SPLIT[case]).startswith(f"{JSON} with kv_role kv_")


@pytest.mark.parametrize("case", WHOLE)
def test_an_engine_that_serves_whole_requests_is_no_half(case):
    assert DIALECTS[EngineType.VLLM].split_setting(WHOLE[case]) == ""
