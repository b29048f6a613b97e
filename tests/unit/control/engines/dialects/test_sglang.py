"""What SGLang gets for its tiers, and which of a user's flags set one up."""

import json

import pytest

from promptgroup_operator.adapters.identity import Adapter
from promptgroup_operator.api.loaded_weights import EngineAdaptersSpec
from promptgroup_operator.engines import tiers
from promptgroup_operator.engines.dialects import pod_parts
from promptgroup_operator.engines.dialects.pod_parts import ManualTier
from promptgroup_operator.engines.dialects.sglang import SGLANG
from support.builders import spec
from support.kvtiers import MEMORY, MOONCAKE, VOLUME, parts


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--enable-hierarchical-cache", "--hicache-size=8", "--tp=2"], ("--enable-hierarchical-cache", 16 * 10**9)),
        (["--hicache-ratio=2"], ("--hicache-ratio", 0)),
    ],
    ids=["by size", "by a ratio"],
)
def test_a_tier_that_is_set_up_by_hand(args, expected):
    engine = spec(engine={"type": "SGLang", "image": "engine", "args": args}).engine
    assert tiers.manual_tier(engine) == ManualTier(*expected)


@pytest.mark.parametrize(
    ("args", "size"),
    [
        ([], 68),
        (["--tp=2"], 34),
        (["--tensor-parallel-size", "4", "--dp-size=2"], 8),
        (["--tp-size=4", "--dp=4", "--enable-dp-attention"], 17),
        (["--tp", "many"], 68),
    ],
)
def test_sglang_counts_its_memory_in_whole_gb_for_each_rank(args, size):
    made = parts(MEMORY, type="SGLang", image="lmsysorg/sglang:v0.5.23", args=args)
    assert made == pod_parts.PodParts(args=("--enable-hierarchical-cache", f"--hicache-size={size}"))


def test_what_stands_behind_sglangs_memory():
    volume = parts(VOLUME, type="SGLang")
    assert "--hicache-storage-backend=file" in volume.args
    assert volume.env["SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR"].startswith(f"{pod_parts.FOLDER}/pg-")
    pool = parts(MEMORY | MOONCAKE, type="SGLang")
    (extra,) = (each for each in pool.args if "extra-config" in each)
    name = pod_parts.namespace(spec(engine={"type": "SGLang"}))
    assert json.loads(extra.partition("=")[2]) == {"extra_backend_tag": name}
    assert "--watchdog-timeout=120" in pool.args  # /health answers 200 while a step stands still
    assert not any("watchdog" in each for each in volume.args)
    assert (pool.env["MOONCAKE_MASTER"], pool.env["MOONCAKE_PROTOCOL"]) == ("kv.pools:50051", "tcp")
    assert pool.awaits == ("kv.pools", "50051")


@pytest.mark.parametrize("mode", ["prefill", "decode"])
def test_one_half_of_a_pair_is_known_by_its_mode(mode):
    for args in ([f"--disaggregation-mode={mode}"], ["--disaggregation_mode", mode]):
        assert SGLANG.split_setting(args) == f"--disaggregation-mode {mode}"
    assert SGLANG.split_setting(["--disaggregation-mode", "null", "--tp=2"]) == ""


def test_a_batch_of_sglang_has_a_place_for_requests_of_the_model_itself():
    adapter = Adapter("tone", "example/v1")
    room = EngineAdaptersSpec(max_active=4, max_in_memory=4, max_rank=32)
    assert SGLANG.adapters.args(room, None) == (
        "--enable-lora",
        "--max-loras-per-batch=5",
        "--max-loaded-loras=5",  # SGLang wants as many as in a batch at least
        "--max-lora-rank=32",
        "--lora-target-modules=all",
    )
    own = SGLANG.adapters.args(None, adapter)
    assert own[1:3] == ("--max-loras-per-batch=2", "--max-loaded-loras=2")
    assert own[-1] == f"--lora-paths={adapter.served}=example/v1"
    assert SGLANG.adapters.args(None, None) == ()
    set_ = {arg.partition("=")[0] for arg in (*SGLANG.adapters.args(room, adapter),)}
    assert set_ - {"--lora-target-modules"} == SGLANG.adapters.flags
