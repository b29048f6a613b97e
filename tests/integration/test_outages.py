"""What clients meet while nobody looks after a group: nothing. The operator dies or is away, the API server is."""

import time

import pytest

from promptgroup_local.kubectl import wait_for
from support.evictions import wait_evicted
from support.life import GROUP, Life, lives, unharmed

pytestmark = pytest.mark.integration


def test_an_operator_that_dies_in_the_midst_of_an_update_harms_nobody(life: Life) -> None:
    before = life.pods()
    with life.load.watched() as seen:
        life.kube.apply(lives(args=("--max-num-batched-tokens=2048",)))
        life.kill_operators()
        wait_for(lambda: True if set(life.pods().values()) - set(before.values()) else None, "progress", life.pods)
        life.kill_operators()
        life.rolled()
    assert not set(before.values()) & set(life.pods().values())
    assert unharmed(seen)


def test_an_eviction_without_an_operator_harms_nobody(life: Life) -> None:
    slot, evicted = min(life.pods().items())
    operators = life.cluster.kubectl("promptgroup-system")
    count = operators.get("deployment", "promptgroup-operator")["spec"]["replicas"]
    with life.load.watched() as seen:
        operators.scale("deployment", "promptgroup-operator", 0)
        wait_for(lambda: True if operators.list("pods") == [] else None, "the operators to go")
        wait_evicted(life.kube, evicted)
        life.gone([evicted])
        with life.load.watched():
            pass  # the router finds by itself that nobody is there
        operators.scale("deployment", "promptgroup-operator", count)
        life.replaced(slot, evicted)
    assert unharmed(seen)


def test_an_outage_of_the_api_server_for_a_minute_harms_nobody(life: Life) -> None:
    before, rings = life.pods(), life.rings()
    with life.load.watched() as seen:
        life.cluster.plane.stop_apiserver()
        try:
            time.sleep(60)
        finally:
            life.cluster.plane.start_apiserver()
            life.cluster.plane.restart_controllers()
        life.kube.scale("promptgroup", GROUP, 4)
        life.kube.wait_warm(GROUP, "4/4")
    assert unharmed(seen)
    assert before.items() <= life.pods().items()
    for session, ring in life.rings().items():
        assert [slot for slot in ring if slot in before] == rings[session]
    assert seen.stayed()
