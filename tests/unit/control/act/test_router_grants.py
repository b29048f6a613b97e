import threading

import pytest

from promptgroup_operator.act.router_grants import RECHECK_SECONDS, RouterGrants
from promptgroup_operator.base.errors import ClusterError
from promptgroup_operator.plan.router_secrets import ROLES
from promptgroup_operator.world.snapshot import Key

A, B, ELSEWHERE = Key("chat", "a"), Key("chat", "b"), Key("other", "a")


def route(*secrets):
    return {"spec": {"revisions": [{"promptFrom": {"kind": "Secret", "name": name}} for name in secrets]}}


class Namespaces:
    """Roles and routes, and what is asked of them."""

    def __init__(self, *roles):
        self.roles = dict.fromkeys(roles)
        self.routes = {}
        self.now = 0.0
        self.reads = 0
        self.error = None
        self.grants = RouterGrants(self.read, self.of, self, lambda: self.now)

    def read(self, key, name):
        self.reads += 1
        return {"rules": self.roles[key.namespace, name]} if (key.namespace, name) in self.roles else None

    def of(self, namespace):
        return {key: each for key, each in self.routes.items() if key.namespace == namespace}

    def apply(self, manifest, seen):
        if self.error is not None:
            raise self.error
        metadata = manifest["metadata"]
        self.roles[metadata["namespace"], metadata["name"]] = manifest["rules"]

    def granted(self, namespace="chat", name=ROLES[0]):
        rules = self.roles[namespace, name]
        return [each for rule in rules or () for each in rule["resourceNames"]]


def test_what_all_routes_of_the_namespace_name_is_granted():
    chat = Namespaces(("chat", ROLES[0]), ("chat", ROLES[1]), ("other", ROLES[0]))
    chat.routes[B] = route("b-1")
    chat.grants.put(A, [route("a-1"), route("a-2")])
    assert chat.granted() == chat.granted(name=ROLES[1]) == ["a-1", "a-2", "b-1"]
    assert chat.granted("other") == []
    chat.grants.put(ELSEWHERE, [route("x")])
    assert (chat.granted("other"), chat.granted()) == (["x"], ["a-1", "a-2", "b-1"])


def test_a_grant_stays_while_the_route_that_needs_it_is_on_its_way():
    chat = Namespaces(("chat", ROLES[0]))
    chat.grants.put(A, [route("a-1")])
    chat.grants.put(B, [route("b-1")])  # the store has neither route yet
    assert chat.granted() == ["a-1", "b-1"]
    chat.grants.put(A, [route("a-2")])
    assert chat.granted() == ["a-2", "b-1"]
    chat.grants.forget(B)
    assert chat.granted() == ["a-2"]


def test_what_a_group_names_no_longer_is_taken_back_though_its_route_stands():
    chat = Namespaces(("chat", ROLES[0]))
    chat.routes = {A: route("a-1"), B: route("b-1")}
    chat.grants.put(A, [route("a-2")])
    assert chat.granted() == ["a-2", "b-1"]


def test_nothing_is_read_again_at_rest_until_a_role_may_have_been_replaced():
    chat = Namespaces(("chat", ROLES[0]))
    for _ in range(3):
        chat.grants.put(A, [route("a-1")])
    assert chat.reads == len(ROLES)
    chat.roles["chat", ROLES[0]] = None  # installed anew
    chat.now += RECHECK_SECONDS
    chat.grants.put(A, [route("a-1")])
    assert chat.granted() == ["a-1"]


def test_where_no_secret_is_named_roles_are_looked_at_once():
    """A fleet at rest asks the API server for nothing."""
    chat = Namespaces(("chat", ROLES[0]))
    for _ in range(3):
        chat.grants.put(A, [route()])
        chat.now += RECHECK_SECONDS
    assert chat.reads == len(ROLES)
    chat.grants.put(A, [route("a-1")])
    assert chat.granted() == ["a-1"]


def test_a_role_that_is_installed_later_is_filled():
    chat = Namespaces()
    chat.grants.put(A, [route("a-1")])
    assert chat.roles == {}
    chat.roles["chat", ROLES[0]] = None
    chat.grants.put(A, [route("a-1")])
    assert chat.granted() == ["a-1"]


@pytest.mark.parametrize(("status", "why"), [(403, "forbidden"), (500, 'failed calling webhook "rbac.example.com"')])
def test_without_the_right_passes_go_on_and_other_errors_end_the_pass(caplog, status, why):
    chat = Namespaces(("chat", ROLES[0]))
    chat.error = ClusterError(why, status=status)
    chat.grants.put(A, [route("a-1")])
    assert "cannot be given" in caplog.text
    chat.error = ClusterError("conflict", status=409)
    with pytest.raises(ClusterError):
        chat.grants.put(A, [route("a-2")])


def test_a_write_that_is_not_answered_yet_keeps_no_other_namespace_waiting():
    chat = Namespaces(("chat", ROLES[0]), ("other", ROLES[0]))
    plain, done = chat.apply, []

    def unanswered(manifest, seen):
        if manifest["metadata"]["namespace"] == "chat":
            elsewhere = threading.Thread(target=chat.grants.put, args=(ELSEWHERE, [route("x")]), daemon=True)
            elsewhere.start()
            elsewhere.join(30)
            done.append(not elsewhere.is_alive())
        plain(manifest, seen)

    chat.apply = unanswered
    chat.grants.put(A, [route("a-1")])
    assert done == [True]
    assert chat.granted("other") == ["x"]
