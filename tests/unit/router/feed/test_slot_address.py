"""A router connects to addresses that pods can have."""

import ipaddress

import pytest

from promptgroup_contract.encoding import encode_group
from promptgroup_contract.table import Slot, SlotState, TableError
from promptgroup_router.base.steps import at_once
from promptgroup_router.feed.prompt_routes import Routes
from promptgroup_router.feed.slot_address import check_steps
from support.tables import group, revision, slot

LAPTOP = ipaddress.ip_network("127.64.0.0/10")


def at(address):
    return group("support", revision(slots=(slot(0, address=address),)))


@pytest.mark.parametrize(
    "address", ["10.0.0.1:8000", "192.168.1.1:8000", "100.64.0.9:80", "[fd00:10::5]:8000", "[2001:db8::1]:8000"]
)
def test_addresses_of_pods_are_taken(address):
    at_once(check_steps(at(address), ()))


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:8000",
        "127.64.0.9:8000",
        "[::1]:8000",
        "169.254.169.254:80",
        "[fe80::1]:80",
        "[fe80::1%eth0]:80",
        "0.0.0.0:80",
        "[::]:80",
        "224.0.0.1:80",
        "255.255.255.255:80",
        "[::ffff:169.254.169.254]:80",
        "[::ffff:127.0.0.1]:80",
        "[64:ff9b::a9fe:a9fe]:80",
        "[2002:7f00:1::]:80",
        "100.100.100.200:80",
        "168.63.129.16:80",
        "[fd00:ec2::254]:80",
        "metadata.google.internal:80",
        "localhost:9090",
        "2130706433:80",
        "127.1:80",
    ],
)
def test_addresses_that_no_pod_has_are_refused_with_group_slot_and_address(address):
    with pytest.raises(TableError) as refused:
        at_once(check_steps(at(address), ()))
    assert "chat/support: revision " in str(refused.value)
    assert "slot 0" in str(refused.value)
    assert repr(address) in str(refused.value)


def test_a_laptops_pods_are_taken_where_their_network_is_allowed():
    at_once(check_steps(at("127.64.0.9:8000"), (LAPTOP,)))
    with pytest.raises(TableError):
        at_once(check_steps(at("127.0.0.1:8000"), (LAPTOP,)))


def test_a_slot_without_a_replica_has_no_address():
    at_once(check_steps(group("support", revision(slots=(Slot(0, SlotState.ABSENT, "", "", ""),))), ()))


def test_a_route_to_the_routers_own_machine_leaves_the_last_good_one():
    routes = Routes()
    good, bad = at("10.0.0.1:8000"), at("127.0.0.1:9090")
    for version, each in (("1", good), ("2", bad)):
        item = {"metadata": {"name": "support", "resourceVersion": version}, "spec": encode_group(each)}
        change = routes.event("chat", {"type": "MODIFIED", "object": item})
    assert "127.0.0.1:9090" in change.problems[0]
    ((served,),) = [[slot.address for slot in each.revisions[0].slots] for each in routes.table().groups]
    assert served == "10.0.0.1:8000"
