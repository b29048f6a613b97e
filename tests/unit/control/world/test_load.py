import pytest

from promptgroup_operator.world.load import ClientLoad, EngineLoad, summed
from promptgroup_operator.world.samples import Histogram


def engines(queries, hits):
    return EngineLoad(
        replicas=1, coverage=1, requests=1, queries=queries, hits=hits, generated=1, computed=None, prefill_busy=None,
        decode_busy=None, queue_busy=None, running=0, waiting=0, usage=0, preemptions=None, first_token=Histogram(),
        kv_tokens=0, prefill_rate=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("queries", "hits", "rate"),
    [(0, 0, None), (100, 0, 0.0), (100, 40, 0.4), (100, 101, 1.0)],
    ids=["nothing looked up is unknown", "nothing found is zero", "a share", "never above one"],
)
def test_the_hit_rate_is_a_share_or_unknown(queries, hits, rate):
    assert engines(queries, hits).hit_rate == rate


def clients(requests=1.0, **fields):
    return ClientLoad(
        **{
            "requests": requests, "errors": 0.0, "prompt_tokens": 0.0, "sessions": 1.0, "session_tokens": 10.0,
            "declared_tokens": 100, "first_token": Histogram((1.0,), (1.0, 0.0)), **fields,
        }
    )  # fmt: skip


def test_loads_on_the_same_engines_add_up():
    found = summed([clients(3.0, opening=0.5, evicted=(1.0, 2.0)), clients(1.0, declared_tokens=300, evicted=(4.0,))])
    assert (found.requests, found.sessions, found.session_tokens, found.declared_tokens) == (4, 2, 20, 150)
    assert found.first_token.counts == (2, 0)
    assert found.evicted == (5, 2)
    assert found.opening == 0.5


def test_what_is_unknown_of_one_is_unknown_of_all_and_nothing_is_no_load():
    assert summed([clients(), clients(sessions=None)]).sessions is None
    assert summed([]) is None
    assert summed([clients(0.0), clients(0.0)]).declared_tokens == 0
