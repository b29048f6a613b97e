import orjson
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.undeclared.unmatched import CAPACITY
from promptgroup_router.workers.tables import merge_tables, merge_unmatched


def replica(own, peers=0, **more):
    return {"inFlight": own, "inFlightOfPeers": peers, "waitSeconds": 0.0, "liveSessions": 3, "kvTokens": None} | more


def document(**replicas):
    return {"version": "v1", "groups": [{"name": "support"}], "conflicts": [], "replicas": replicas, "moves": []}


def test_requests_are_added_and_what_workers_know_of_each_other_is_not_counted_twice():
    documents = [document(a=replica(2, 3 + 1)), document(a=replica(3, 2 + 1), b=replica(1))]
    for each in documents:
        for said in each["replicas"].values():
            said["kvTokens"] = 100
    found = orjson.loads(merge_tables(documents))
    assert (found["version"], found["groups"]) == ("v1", [{"name": "support"}])
    assert (found["replicas"]["a"]["inFlight"], found["replicas"]["a"]["inFlightOfPeers"]) == (5, 1)
    assert (found["replicas"]["a"]["liveSessions"], found["replicas"]["b"]["inFlight"]) == (3, 1)


def test_workers_that_have_not_heard_of_each_other_yet():
    found = orjson.loads(merge_tables([document(a=replica(2, kvTokens=1)), document(a=replica(3, kvTokens=1))]))
    assert (found["replicas"]["a"]["inFlight"], found["replicas"]["a"]["inFlightOfPeers"]) == (5, 0)


def test_moves_of_sessions_are_put_together_the_oldest_first():
    documents = [document(), document()]
    for each, ages in zip(documents, ([9.0, 2.0], [5.0]), strict=True):
        each["moves"] = [{"from": "a", "to": "b", "secondsAgo": age} for age in ages]
    assert [each["secondsAgo"] for each in orjson.loads(merge_tables(documents))["moves"]] == [9.0, 5.0, 2.0]


def prefix(name, requests):
    rates = {"requestsPerSecond": 1.0, "tokensPerSecond": float(requests), "tokensPerSecondTooHighBy": 0.0}
    return {"model": "m", "hash": name, "systemBytes": 5, "requests": requests, "bitmaps": "00" * 64, **rates}


PREFIXES = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.integers(1, 99)), max_size=6, unique_by=lambda each: each[0]
)


@given(st.lists(PREFIXES, min_size=1, max_size=4))
def test_unmatched_requests_are_added(said):
    documents = [{"unmatched": [prefix(*each) for each in one]} for one in said]
    found = orjson.loads(merge_unmatched(documents))["unmatched"]
    assert sum(each["requests"] for each in found) == sum(count for one in said for _, count in one)
    assert [each["requests"] for each in found] == sorted((each["requests"] for each in found), reverse=True)
    assert len({each["hash"] for each in found}) == len(found)


def test_no_more_are_listed_than_by_one_router():
    documents = [{"unmatched": [prefix(f"{number}-{worker}", number) for number in range(200)]} for worker in range(2)]
    assert len(orjson.loads(merge_unmatched(documents))["unmatched"]) == CAPACITY
