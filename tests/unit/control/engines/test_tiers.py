"""What a pod gets for its tiers, and what is refused."""

from pathlib import Path

import pytest

from promptgroup_cli.rehearsal import cel_rules
from promptgroup_operator.api.prompt_group import parse_spec
from promptgroup_operator.engines import tiers
from promptgroup_operator.engines.dialects import pod_parts
from promptgroup_operator.world.load import TierReach
from support.builders import spec
from support.kvtiers import LMCACHE, MEMORY, MOONCAKE, VOLUME, parts
from support.yamlfiles import document, documents

ROOT = Path(__file__).parents[4]


def test_without_tiers_nothing_is_added():
    assert parts(None) == pod_parts.NOTHING


OFF = {"prefixCaching": "Disabled"}
NIXL = '--kv-transfer-config={"kv_connector":"NixlConnector","kv_role":"kv_both"}'


def test_each_engine_is_told_not_to_cache_in_its_own_words():
    assert parts(OFF) == pod_parts.PodParts(args=("--no-enable-prefix-caching",))
    assert parts(OFF, type="SGLang") == pod_parts.PodParts(args=("--disable-radix-cache",))
    made = parts(OFF, type="TensorRTLLM")
    assert document(made.config) == {"kv_cache_config": {"enable_block_reuse": False}}


def test_a_group_that_caches_nothing_has_no_tier():
    assert tiers.reach(spec(cache=OFF)) is TierReach.NONE
    assert tiers.tiers_on(spec(cache=OFF), 400_000) == []
    assert tiers.problem(spec(cache=OFF, engine={"image": "vllm/vllm-openai:v0.9.0"}), None) == ""


REFUSED = {
    "a connector by hand": (LMCACHE, {"args": ["--kv-transfer-config={}"]}, "--kv-transfer-config"),
    "a tier by hand that no engine looks into": (
        OFF,
        {"args": ["--kv-offloading-size=3"]},
        "prefixCaching is Disabled",
    ),
    "a connector by hand, dotted": (
        LMCACHE,
        {"args": ["--kv-transfer-config.kv_connector", "LMCacheConnectorV1"]},
        "both set up KV tiers",
    ),
    "a connector between prefill and decode": (LMCACHE, {"args": [NIXL]}, "the one KV connector"),
    "an old LMCache": (LMCACHE, {"image": "lmcache/vllm-openai:v0.4.2"}, "LMCache 0.5 or newer"),
    "a very old LMCache": (LMCACHE, {"image": "docker.io/lmcache/vllm-openai:v0.3.9"}, "LMCache 0.5 or newer"),
    "the same with underscores": (MEMORY, {"args": ["--kv_offloading_size", "3"]}, "--kv-offloading-size"),
    "HiCache by hand": (MEMORY, {"type": "SGLang", "args": ["--hicache-ratio=2"]}, "--hicache-ratio"),
    "revisions that LMCache cannot tell apart": (LMCACHE, {"args": ["--revision", "a"]}, "two revisions"),
    "an old vLLM": (MEMORY, {"image": "vllm/vllm-openai:v0.11.2"}, "vLLM 0.22 or newer"),
    "an old SGLang": (MEMORY, {"type": "SGLang", "image": "docker.io/lmsysorg/sglang:v0.4.9"}, "SGLang 0.5"),
    "too small for its ranks": (
        {"offload": {"memory": "1Gi"}},
        {"type": "SGLang", "args": ["--tp=8"]},
        "less than 1 GB for each rank",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_with_the_way_out(case):
    cache, engine, said = REFUSED[case]
    assert said in tiers.problem(spec(cache=cache, engine=engine), None)


FINE = {
    "no tiers": (None, {"args": ["--kv-transfer-config={}"]}),
    "an image whose tags are not the engine's": (MEMORY, {"image": "lmcache/vllm-openai:v0.5.6"}),
    "a tag that is no number": (MEMORY, {"image": "vllm/vllm-openai:nightly"}),
    "LMCache's image with a new LMCache": (LMCACHE, {"image": "lmcache/vllm-openai:v0.5.6"}),
    "engines that cache nothing and hand over": (OFF, {"args": [NIXL]}),
    "a digest": (MEMORY, {"image": "vllm/vllm-openai@sha256:" + "0" * 64}),
    "a revision with a pool that keeps it apart": (MOONCAKE, {"args": ["--revision=a"]}),
}


@pytest.mark.parametrize("case", FINE)
def test_what_can_work_is_not_refused(case):
    cache, engine = FINE[case]
    assert tiers.problem(spec(cache=cache, engine=engine), None) == ""


def test_memory_needs_room_in_the_containers_limit():
    wanted = spec(cache=MEMORY)
    assert "raise the limit" in tiers.problem(wanted, 64 << 30)
    assert tiers.problem(wanted, 65 << 30) == ""


def test_what_is_on_is_told_with_its_capacity():
    def told(kv_tokens=0, **fields):
        return [(each.tier.value, each.capacity, each.source) for each in tiers.tiers_on(spec(**fields), kv_tokens)]

    assert told(400_000) == []
    assert told(400_000, cache=VOLUME) == [
        ("GPU", "400000 tokens", None),
        ("Memory", "64Gi", None),
        ("Volume", None, "kv"),
    ]
    assert told(cache=LMCACHE)[1:] == [("Pool", None, "LMCache kv.pools:5555")]
    assert told(engine={"args": ["--kv-offloading-size=3"]})[1:] == [("EngineArgs", "3Gi", "--kv-offloading-size")]
    dotted = ["--kv-transfer-config.kv_connector", "LMCacheConnectorV1"]
    assert told(engine={"args": dotted})[1:] == [("EngineArgs", None, "--kv-transfer-config.kv-connector")]


def test_who_can_copy_from_the_tiers():
    pool = {"pool": {"type": "LMCache", "address": "kv:5555"}}
    memory, volume = {"memory": "8Gi"}, {"memory": "8Gi", "claimName": "kv"}
    flag = {"type": "vLLM", "image": "vllm", "args": ["--kv-offloading-size=8"]}
    cases = {
        "None": spec(),
        "Shared": spec(cache=pool),
        "Replica": spec(cache={"offload": memory}),
        "Unseen": spec(cache={"offload": memory}, engine={"type": "TensorRTLLM", "image": "trtllm"}),
    }
    assert {want: tiers.reach(each).value for want, each in cases.items()} == {want: want for want in cases}
    assert tiers.reach(spec(cache={"offload": volume})) is TierReach.SHARED
    assert tiers.reach(spec(engine=flag)) is TierReach.REPLICA
    assert tiers.reach(spec(engine={"args": [NIXL]})) is TierReach.NONE


SAMPLES = sorted(
    path
    for path in (ROOT / "manifests" / "samples").glob("*.yaml")
    if any(each["kind"] == "PromptGroup" and "cache" in each["spec"] for each in documents(path.read_text()))
)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_samples_keep_the_rules_and_can_work(path):
    (group,) = (each for each in documents(path.read_text()) if each["kind"] == "PromptGroup")
    wanted = parse_spec(group["spec"])
    assert list(cel_rules.broken_rules(group["metadata"]["name"], wanted)) == []
    assert tiers.problem(wanted, None) == ""
    assert tiers.parts(wanted) != pod_parts.NOTHING


def test_the_volume_of_the_sample_is_one_that_all_replicas_mount():
    objects = list(documents((ROOT / "manifests/samples/volume.yaml").read_text()))
    (group,) = (each for each in objects if each["kind"] == "PromptGroup")
    (claim,) = (each for each in objects if each["kind"] == "PersistentVolumeClaim")
    assert tiers.parts(parse_spec(group["spec"])).claim == claim["metadata"]["name"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]


def test_there_is_a_sample_of_each_kind_of_tier():
    assert {each.stem for each in SAMPLES} >= {"mooncake", "offload", "pool", "sglang", "volume"}
