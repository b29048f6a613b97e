"""Work of the operator with many groups, counted: passes, requests, objects that it looks at. No time is measured."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from promptgroup_operator.base.backoff import LAST_RETRY
from promptgroup_operator.kube.store import Store
from promptgroup_operator.passes import work_queue
from promptgroup_operator.plan import desired
from promptgroup_operator.world.snapshot import Key
from support.countedfleet import SPACE, CountedFleet

SIZES = (20, 50, 100)
REPLICAS = 5


@pytest.fixture
def fleet_of(monkeypatch) -> Iterator[Callable[[int], CountedFleet]]:
    made = []

    def create(groups: int) -> CountedFleet:
        fleet = CountedFleet(monkeypatch)
        made.append(closing(fleet))
        fleet.create(groups, REPLICAS)
        return fleet

    yield create
    for each in made:
        each.__exit__(None, None, None)


@pytest.mark.heavy
@pytest.mark.parametrize("groups", SIZES)
def test_a_group_costs_as_many_passes_and_requests_among_many_as_among_few(fleet_of, groups):
    fleet = fleet_of(groups)
    fleet.run(30)
    fleet.warm_all()
    fleet.run(30)
    assert all(len(fleet.routed(key)) == REPLICAS for key in fleet.passes)
    assert len(fleet.passes) == groups
    assert fleet.calls["read"] <= 9 * groups
    assert fleet.calls["write"] <= 35 * groups
    assert max(fleet.passes.values()) <= 20


def test_of_groups_with_one_prompt_the_oldest_serves_though_the_others_have_their_passes_first(monkeypatch):
    with closing(CountedFleet(monkeypatch)) as fleet:
        fleet.create(4, 1, prompt="One prompt for all.")
        assert [key.name for key in fleet.run(most=4)] == ["g000", "g001", "g002", "g003"]
        fleet.run(30)
    deployments = {
        each["metadata"]["name"].rpartition("-")[0] for (kind, _), each in fleet.objects.items() if kind == "Deployment"
    }
    assert deployments == {"g003"}
    reasons = {
        name: {each["type"]: each["reason"] for each in found["status"]["conditions"]}["Accepted"]
        for (kind, name), found in fleet.objects.items()
        if kind == "PromptGroup"
    }
    assert [reasons[f"g00{number}"] for number in range(3)] == ["Conflict"] * 3


@pytest.mark.heavy
def test_a_fleet_at_rest_asks_the_api_server_for_nothing(fleet_of):
    fleet = fleet_of(groups := 50)
    fleet.run(30)
    fleet.warm_all()
    fleet.run(90)
    fleet.calls.clear()
    fleet.passes.clear()
    fleet.run(120)
    assert set(fleet.passes.values()) <= {2, 3}
    assert len(fleet.passes) == groups
    assert fleet.calls == {}


@pytest.mark.heavy
@pytest.mark.parametrize("groups", SIZES)
def test_replicas_that_become_warm_are_routed_before_all_other_work(fleet_of, groups):
    fleet = fleet_of(groups)
    fleet.run(30)
    for number in range(groups):
        fleet.queue.add(Key(SPACE, f"g{number:03}"))
    fleet.run(most=3)
    warm = {}
    for number in (groups - 1, 7, groups // 2):  # the last one is at the end of the queue
        key = Key(SPACE, f"g{number:03}")
        (job, *_) = fleet.warmups.wanted[key].values()
        fleet.warm(key, job)
        warm[key] = job.pod
    assert set(fleet.run(most=3)) == set(warm)
    assert all(pod in fleet.routed(key) for key, pod in warm.items())


@pytest.mark.heavy
def test_changes_that_no_pass_reads_make_no_pass(fleet_of):
    fleet = fleet_of(groups := 20)
    fleet.run(30)
    fleet.warm_all()
    fleet.run(30)
    fleet.passes.clear()
    pods = [pod for (kind, _), pod in fleet.objects.items() if kind == "Pod"]
    for pod in pods:
        seen = {**pod["metadata"]["annotations"], "example.com/seen": "now"}
        probed = [{**each, "lastProbeTime": "2026-11-27T12:00:00Z"} for each in pod["status"]["conditions"]]
        metadata, status = {**pod["metadata"], "annotations": seen}, {**pod["status"], "conditions": probed}
        fleet.put({**pod, "metadata": metadata, "status": status})
    assert len(pods) == groups * REPLICAS
    assert fleet.run() == []
    fleet.put({**pods[0], "status": {**pods[0]["status"], "podIP": "10.0.0.6"}})
    assert len(set(fleet.run())) == 1


def test_a_pass_merges_the_pod_template_of_a_group_once(fleet_of, monkeypatch):
    merged = Counter()
    plain = desired._merged_template

    def counting(group):
        merged[group.key] += 1
        return plain(group)

    monkeypatch.setattr(desired, "_merged_template", counting)
    fleet = fleet_of(2)
    fleet.run(30)
    fleet.warm_all()
    fleet.run(90)
    assert merged == fleet.passes


@pytest.mark.heavy
def test_a_pass_looks_at_no_more_objects_among_many_groups_than_among_few(fleet_of, monkeypatch):
    seen = []

    def counting(plain):
        def found(*args):
            told = plain(*args)
            seen.append(len(told))
            return told

        return found

    for method in ("list_at", "list_all"):
        monkeypatch.setattr(Store, method, counting(getattr(Store, method)))
    looked = {}
    for groups in (20, 100):
        fleet = fleet_of(groups)
        fleet.run(30)
        fleet.warm_all()
        fleet.run(90)
        seen.clear()
        fleet.passes.clear()
        fleet.run(60)
        looked[groups] = sum(seen) / fleet.passes.total()
    assert looked[100] == looked[20]


def test_a_turn_of_the_queue_costs_as_much_among_many_keys_as_among_few(monkeypatch):
    asked = []

    class Counting(work_queue.WorkQueue):
        def _at(self, key):
            asked.append(key)
            return super()._at(key)

    costs = {}
    for groups in (20, 2000):
        now = [0.0]
        queue = Counting(lambda now=now: now[0], workers=8)
        for number in range(groups):
            queue.add(Key(SPACE, f"g{number}"), LAST_RETRY)
        now[0] = 60.0
        queue.done(queue.take(), LAST_RETRY)
        asked.clear()
        for _ in range(10):
            queue.done(queue.take(), LAST_RETRY)
        costs[groups] = len(asked)
    assert costs[2000] == costs[20]


@pytest.mark.heavy
def test_two_hundred_guests_on_eight_replicas_ask_for_nothing_at_rest(monkeypatch):
    guests, replicas = 200, 8
    with closing(CountedFleet(monkeypatch)) as fleet:
        fleet.create_guests(guests, replicas)
        fleet.run(30)
        fleet.warm_all()
        fleet.run(30)
        fleet.warm_all()
        fleet.run(90)
        routed = [fleet.routed(Key(SPACE, f"guest-{number + 1:03}")) for number in range(guests)]
        assert all(len(pods) == replicas for pods in routed)
        assert sum(kind in ("Pod", "Deployment") for kind, _ in fleet.objects) == replicas + 1
        assert fleet.calls["write"] <= 16 * guests
        fleet.calls.clear()
        fleet.passes.clear()
        fleet.run(120)
        assert set(fleet.passes.values()) <= {2, 3}
        assert len(fleet.passes) == guests + 1
        assert fleet.calls == {}


@pytest.mark.heavy
def test_a_prompt_of_a_guest_is_released_five_seconds_after_its_apply_beside_the_time_of_its_warm_ups(monkeypatch):
    guests, replicas, name = 20, 4, "guest-001"
    with closing(CountedFleet(monkeypatch)) as fleet:
        fleet.create_guests(guests, replicas)
        fleet.run(30)
        fleet.warm_all()
        fleet.run(30)
        fleet.warm_all()
        fleet.run(90)
        applied = fleet.objects["PromptGroup", name]
        spec = {**applied["spec"], "prompt": {"system": "You are another one."}}
        began = fleet.now
        fleet.put({**applied, "spec": spec, "metadata": {**applied["metadata"], "generation": 2}})
        while (weights := fleet.weights(name)) != [0, 100]:
            assert fleet.now - began < 5, weights
            fleet.run(1)
            fleet.warm_all()
        assert len(fleet.routed(Key(SPACE, name))) == replicas
        assert sum(kind in ("Pod", "Deployment") for kind, _ in fleet.objects) == replicas + 1


def test_refreshes_are_run_by_the_passes_that_a_group_at_rest_has_in_any_case(fleet_of):
    fleet = fleet_of(groups := 8)
    fleet.run(30)
    fleet.warm_all()
    fleet.run(300)
    fleet.passes.clear()
    fleet.refreshed.clear()
    minutes = 20
    fleet.run(60 * minutes)
    assert len(fleet.refreshed) == groups * REPLICAS
    assert all(minutes / 5 <= count <= minutes / 2.5 for count in fleet.refreshed.values())
    assert max(fleet.passes.values()) <= minutes
