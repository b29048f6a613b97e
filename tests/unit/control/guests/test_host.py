from dataclasses import replace

import pytest

from promptgroup_contract.table import Sharing, Sleep, SlotState
from promptgroup_operator.guests import host
from support import builders
from support.guestmodel import guest_spec

OTHERS = guest_spec(engineFrom={"promptGroup": "other"})


@pytest.mark.parametrize(
    ("guest", "serving", "reason", "way_out"),
    [
        (guest_spec(), None, "HostNotFound", "create it"),
        (guest_spec(), OTHERS, "HostIsGuest", "name other instead"),
        (guest_spec(model="qwen"), builders.spec(), "HostModelDiffers", "remove spec.model"),
        (guest_spec(), builders.spec(cache={"prefixCaching": "Disabled"}), "HostCachesNothing", "remove that"),
    ],
)
def test_a_host_that_cannot_serve_is_told_with_the_field_and_the_way_out(guest, serving, reason, way_out):
    found = host.problem("pool", guest, serving)
    assert found.reason == reason
    assert "spec.engineFrom.promptGroup" in found.message
    assert way_out in found.message


def test_a_host_that_loads_no_adapters_is_told_with_its_field():
    adapter = {"name": "tone", "source": {"huggingFace": "example/tone"}}
    found = host.problem("pool", guest_spec(adapter=adapter), builders.spec())
    assert found.reason == "HostLoadsNoAdapters"
    assert "spec.engine.adapters" in found.message
    room = builders.spec(engine={"adapters": {}})
    assert host.problem("pool", guest_spec(adapter=adapter), room) is None
    # requests for an adapter with an undeclared prompt have nowhere else to go
    assert host.served(guest_spec(adapter=adapter), room, 1, "").routing.sharing is Sharing.POOL


def test_a_host_that_is_being_deleted():
    assert host.problem("pool", guest_spec(), builders.spec(), deleting=True).reason == "HostNotFound"


def test_a_host_that_serves():
    assert host.problem("pool", guest_spec(model="llama"), builders.spec()) is None


def test_pods_that_go_serve_no_guest():
    stays, ends, drains, listed = (builders.pod(name) for name in ("a", "b", "c", "d"))
    ends, drains = replace(ends, deleting=True), replace(drains, draining_since=builders.NOW)
    found = host.replicas("pool", [stays, ends, drains, listed], {"a": SlotState.READY, "d": SlotState.DRAINING})
    assert (found.pods, found.leaving, found.problem) == ((stays,), (ends, drains, listed), None)


def test_a_host_whose_replicas_all_leave_has_none():
    assert (
        host.replicas("pool", [replace(builders.pod("a"), deleting=True)], {}).problem.reason == "HostWithoutReplicas"
    )


@pytest.mark.parametrize(("asked", "there", "expected"), [(None, 3, 3), (2, 3, 2), (4, 3, 3), (1, 0, 0)])
def test_a_guest_has_the_replicas_that_it_asks_for_if_there_are_so_many(asked, there, expected):
    placement = {"placement": {"replicas": asked}} if asked else {}
    assert host.served(guest_spec(**placement), builders.spec(), there, "").replicas == expected


def test_what_a_guest_has_from_its_host():
    serving = builders.spec(model="llama", engine={"type": "SGLang"})
    found = host.served(guest_spec(), serving, 2, "")
    assert (found.model, found.engine) == ("llama", serving.engine)
    assert found.routing.sharing is Sharing.DEDICATED
    assert found.is_guest


def test_the_model_of_a_host_that_is_gone_is_the_one_served_before():
    assert host.served(guest_spec(), None, 0, "llama").model == "llama"


def test_a_host_without_replicas_is_a_problem_unless_requests_wait_for_one():
    told = [host.replicas("pool", [], {}, sleep=sleep).problem for sleep in (None, Sleep(), Sleep(300))]
    assert [problem.reason if problem is not None else "" for problem in told] == [
        "HostWithoutReplicas", "HostWithoutReplicas", "",
    ]  # fmt: skip
