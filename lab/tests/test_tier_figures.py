"""What an article says of copies between KV tiers, by the model of tiers that `promptgroup size` has.

640 MB of KV, said to be 2,000 tokens: 20 ms over PCIe 4 x16, 10 ms over PCIe 5, 91 and 46 ms from NVMe of the same
generations, against 5 ms of computing them, and 50 to 100 ms for 8,000 tokens.
"""

import pytest

from promptgroup_cli.forecast import kv
from promptgroup_cli.forecast.catalogue import MODELS
from promptgroup_cli.forecast.estimate import MFU, EngineEstimate
from promptgroup_cli.forecast.gpus import GPUS
from promptgroup_cli.forecast.tiers import KINDS, LINK_SHARE, Tier, break_even

TOKENS = 2000
MODEL = MODELS["meta-llama/Llama-3.1-70B"]
BYTES = 640e6
TOKEN_BYTES = round(BYTES / TOKENS)
PCIE_4, PCIE_5, NVME_4, NVME_5 = 32e9, 64e9, 7e9, 14e9


def copied(kind: str, bandwidth: float, latency: float | None = None) -> float:
    """Seconds of a copy over a link of that raw rate, with what the model assumes of it unless `latency` is given."""
    share = 1.0 if latency is not None else LINK_SHARE
    tier = Tier(KINDS[kind], 1e12, share * bandwidth, latency)
    return tier.forecast(1, 0, TOKEN_BYTES, PCIE_4).copy(TOKENS)


def test_the_prefix_is_one_of_a_model_with_seventy_billion_parameters():
    assert kv.token_bytes(MODEL.shape, kv.BYTES["auto"], 1) == pytest.approx(TOKEN_BYTES, rel=0.03)


@pytest.mark.parametrize(
    ("kind", "bandwidth", "claimed"),
    [("dram", PCIE_4, 20), ("dram", PCIE_5, 10), ("nvme", NVME_4, 91), ("nvme", NVME_5, 46)],
)
def test_the_figures_are_those_of_data_sheets_without_latency(kind, bandwidth, claimed):
    assert 1000 * copied(kind, bandwidth, latency=0.0) == pytest.approx(claimed, abs=0.5)


@pytest.mark.parametrize(
    ("kind", "bandwidth", "expected"),
    [("dram", PCIE_4, 35), ("dram", PCIE_5, 22.5), ("nvme", NVME_4, 124), ("nvme", NVME_5, 67)],
)
def test_with_what_copies_reach_and_finding_them_they_take_a_third_to_twice_as_long_again(kind, bandwidth, expected):
    assert 1000 * copied(kind, bandwidth) == pytest.approx(expected, abs=0.5)


@pytest.mark.parametrize(("gpu", "gpus"), [("A100-80GB", 4), ("H100-80GB", 4), ("H100-80GB", 8), ("B200-180GB", 8)])
def test_no_replica_computes_the_prefix_in_5_ms_so_that_copies_pay_sooner_than_is_claimed(gpu, gpus):
    rate = EngineEstimate(MODEL, GPUS[gpu], gpus).prefill_rate
    assert TOKENS / rate > 0.035
    assert TOKENS / (rate / MFU) > 0.015  # all of its arithmetic
    tier = Tier(KINDS["dram"], 1e12).forecast(1, 0, TOKEN_BYTES, gpus * GPUS[gpu].link)
    assert break_even(tier, rate) < 600
