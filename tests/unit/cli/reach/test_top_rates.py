import pytest

from promptgroup_cli.reach.top_rates import ReplicaRate, TopRates, by_slot, rates, router_page
from promptgroup_router.base.metrics import Metrics

FULL = "78aace27" + "0" * 24


def counted(*, requests=0, prompt=0, cached=0, first=(), whole=(), waiting=0, group="chat/support"):
    """A router's page of metrics, by its own code."""
    metrics = Metrics()
    metrics.requests.add(group, "200", amount=requests)
    metrics.requests.add(group, "503", amount=0)
    metrics.prompt_tokens.add(group, amount=prompt)
    metrics.cached_tokens.add(group, amount=cached)
    for streamed, times in (("true", first), ("false", whole)):
        for seconds in times:
            metrics.revision_first_token.observe(group, "78aace27", "first", "name", streamed, value=seconds)
            metrics.revision_first_token.observe(group, "78aace27", "later", "name", streamed, value=seconds)
    metrics.revision_waiting.add(group, "78aace27", amount=waiting)
    return metrics.text()


def replica(in_flight=0, wait=0.0, sessions=0, tokens=0):
    return {"inFlight": in_flight, "waitSeconds": wait, "liveSessions": sessions, "liveTokens": tokens,
            "kvTokens": 1000}  # fmt: skip


def looked(replicas=None, **counts):
    return router_page(counted(**counts), {"replicas": replicas or {}})


def test_rates_are_what_routers_counted_between_two_looks():
    before = {"a": looked(requests=10, prompt=1000, cached=0), "b": looked()}
    after = {"a": looked(requests=40, prompt=2000, cached=900), "b": looked(requests=20, prompt=1000, cached=500)}
    found = rates(before, after, 5.0)["chat/support"]
    assert (found.requests, found.hit_rate) == (10.0, 0.7)


def test_first_tokens_are_those_of_streamed_answers_of_the_time_between():
    before, after = looked(first=[5.0] * 50), looked(first=[5.0] * 50 + [0.1] * 98 + [2.0] * 2, whole=[9.0] * 50)
    found = rates({"a": before}, {"a": after}, 1.0)["chat/support"]
    assert found.median == pytest.approx(0.1, rel=0.3)
    assert found.late == pytest.approx(2.0, rel=0.3)


def test_without_requests_nothing_is_known():
    found = rates({"a": looked(requests=5, prompt=7, first=[1.0])}, {"a": looked(requests=5, prompt=7, first=[1.0])}, 1)
    assert found["chat/support"] == TopRates()


def test_a_router_that_began_anew_or_has_just_come_counts_as_nothing():
    before = {"a": looked(requests=100, prompt=5000, cached=5000, first=[0.1] * 9)}
    after = {"a": looked(requests=3, prompt=30, cached=10, first=[0.1]), "new": looked(requests=99, prompt=99)}
    assert rates(before, after, 1.0)["chat/support"].requests == 0
    assert rates(before, after, 1.0)["chat/support"].hit_rate is None


def test_replicas_are_what_all_routers_have_on_them():
    id_ = f"chat/support/{FULL}/"
    one = looked({f"{id_}0": replica(2, 0.5, 3, 100), f"{id_}1": replica()}, waiting=1)
    other = looked({f"{id_}0": replica(1, 0.75, 2, 200), "chat/sales/ffffffff/10": replica(4)}, waiting=2)
    found = rates({}, {"a": one, "b": other}, 1.0)
    support = found["chat/support"]
    assert support.replicas == (
        ReplicaRate("chat/support", "78aace27", 0, in_flight=3, wait=0.75, sessions=3, filled=0.2),
        ReplicaRate("chat/support", "78aace27", 1),
    )
    assert (support.in_flight, support.waiting) == (3, 3)
    assert found["chat/sales"].in_flight == 4


def test_ranks_are_told_apart_and_together():
    id_ = f"chat/support/{FULL}/"
    one = looked({f"{id_}0.0": replica(2, 0.5, 3, 100), f"{id_}0.1": replica(1, 0.25, 4, 300), f"{id_}1": replica(5)})
    found = rates({}, {"a": one, "b": one}, 1.0)["chat/support"].replicas
    assert [(each.place, each.in_flight) for each in found] == [("0.0", 4), ("0.1", 2), ("1", 10)]
    whole = by_slot(found)
    assert {slot: each.in_flight for (_, slot), each in whole.items()} == {0: 6, 1: 10}
    first = whole[found[0].revision, 0]
    assert (first.wait, first.sessions, first.filled, first.rank) == (0.5, 7, found[1].filled, None)
