import pytest

from promptgroup_operator.world.load import EngineLoad
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
