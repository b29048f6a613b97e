import pytest
from pydantic import ValidationError

from promptgroup_operator.api.cache import CacheSpec, OffloadSpec, PoolSpec, Transport


def test_a_pool_is_reached_by_tcp_and_watched_by_nobody_unless_it_says_so():
    pool = PoolSpec.model_validate({"type": "LMCache", "address": "kv.pools:5555"})
    assert (pool.monitor, pool.transport) == (None, Transport.TCP)


@pytest.mark.parametrize("address", ["kv:1", "10.0.0.7:5555", "[fd00::7]:5555", "kv.pools.svc.cluster.local:65535"])
def test_addresses(address):
    assert PoolSpec.model_validate({"type": "Mooncake", "address": address}).address == address


BAD = {
    "no port": {"pool": {"type": "LMCache", "address": "kv"}},
    "a port of nought": {"pool": {"type": "LMCache", "address": "kv:0"}},
    "a scheme": {"pool": {"type": "LMCache", "address": "tcp://kv:1"}},
    "a path": {"pool": {"type": "LMCache", "address": "kv:1", "monitor": "kv:1/metrics"}},
    "an argument": {"pool": {"type": "LMCache", "address": '"},:1'}},
    "no address": {"pool": {"type": "LMCache"}},
    "an unknown pool": {"pool": {"type": "Redis", "address": "kv:1"}},
    "no memory": {"offload": {"claimName": "kv"}},
    "memory in decimal units": {"offload": {"memory": "64G"}},
    "memory of megabytes": {"offload": {"memory": "64Mi"}},
}


@pytest.mark.parametrize("case", BAD)
def test_what_the_schema_refuses(case):
    with pytest.raises(ValidationError):
        CacheSpec.model_validate(BAD[case])


def test_memory_is_in_gibibytes():
    assert OffloadSpec.model_validate({"memory": "64Gi"}).memory == "64Gi"
