import math

import pytest

from promptgroup_cli.forecast.tiers import KINDS, LINK_SHARE, Tier, TierForecast, break_even, judge, parse, uses_to_pay

LLAMA = 131_072
"""Bytes of a token of Llama-3.1-8B."""


def test_a_tier_is_read_from_its_text():
    assert parse("dram=64GiB") == Tier(KINDS["dram"], 64 * 2**30)
    assert parse("tcp=2TB,3GB/s,15ms") == parse("tcp=2TB,15ms,3GB/s") == Tier(KINDS["tcp"], 2e12, 3e9, 0.015)
    assert parse("rdma=0.5TiB,100Gbit/s") == Tier(KINDS["rdma"], 2**39, 12.5e9)
    assert parse("nvme=1TB,800us").latency == pytest.approx(0.0008)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tape=1TB", "'tape' is not a kind of tier: write one of dram, c2c, nvme, rdma, tcp"),
        ("dram", "'' is not a size above 0"),
        ("dram=0GiB", "'0GiB' is not a size above 0"),
        ("dram=64", "'64' is not a size above 0"),
        ("dram=1GiB,fast", "'fast' is neither a bandwidth nor a latency"),
        ("dram=1GiB,0GB/s", "copies nothing"),
        ("dram=" + "9" * 10_000 + "GB", "is not a size above 0"),
    ],
)
def test_what_is_wrong_with_a_tier_is_said(text, said):
    with pytest.raises(ValueError, match=said):
        parse(text)


def test_a_tier_of_each_replica_grows_with_them_and_a_pool_does_not():
    own, shared = parse("dram=64GiB"), parse("rdma=64GiB")
    tokens = 64 * 2**30 / LLAMA
    assert own.forecast(4, 3000, LLAMA, 64e9).room == 4 * (tokens - 3000)
    assert shared.forecast(4, 3000, LLAMA, 64e9).room == tokens - 3000
    assert parse("dram=0.1GB").forecast(4, 3000, LLAMA, 64e9).room == 0


def test_host_memory_copies_at_the_links_rate_and_what_was_measured_counts():
    assumed = parse("dram=64GiB").forecast(1, 0, LLAMA, 32e9)
    assert assumed.copy(2000) == pytest.approx(0.010 + 2000 * LLAMA / (32e9 * LINK_SHARE))
    measured = parse("dram=64GiB,20GB/s,1ms").forecast(1, 0, LLAMA, 32e9)
    assert measured.copy(2000) == pytest.approx(0.001 + 2000 * LLAMA / 20e9)


def test_from_the_break_even_on_a_copy_is_quicker():
    tier, rate = TierForecast(room=1, latency=0.02, token=2e-5), 10_000
    even = break_even(tier, rate)
    assert tier.copy(even) == pytest.approx(even / rate)
    assert tier.copy(even * 1.1) < even * 1.1 / rate
    assert tier.copy(even * 0.9) > even * 0.9 / rate
    assert break_even(TierForecast(room=1, latency=0, token=1e-4), rate) == math.inf


def test_what_is_written_pays_after_so_many_uses():
    tier = TierForecast(room=1, latency=0.02, token=2e-5)
    copy, write = tier.copy(1000), 0.02
    assert uses_to_pay(tier, 1000, 1.0) == 1
    compute = copy + write / 3.5
    uses = uses_to_pay(tier, 1000, compute)
    assert uses == 4
    assert write / uses + copy < compute < write / (uses - 1) + copy
    assert uses_to_pay(tier, 1000, copy) == math.inf


JUDGED = {
    "no replica less": ((4, 4, 1.0, 0.1), False, "as many replicas"),
    "slower than computing": ((4, 2, 0.09, 0.1), False, "computed in 90 ms and copied in 100 ms over string"),
    "in between": ((4, 2, 0.15, 0.1), None, "to be measured"),
    "much quicker": ((4, 2, 0.4, 0.1), True, "pays: 2 instead of 4 replicas would do"),
}


@pytest.mark.parametrize("case", JUDGED)
def test_a_pool_pays_where_it_saves_replicas_and_copies_quicker_than_they_compute(case):
    arguments, pays, message = JUDGED[case]
    found = judge(*arguments, "string")
    assert found.pays is pays
    assert message in found.message
