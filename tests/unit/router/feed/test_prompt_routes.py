import pytest

from promptgroup_contract.encoding import encode_group
from promptgroup_contract.table import PromptRef, TableError
from promptgroup_router.feed import prompt_routes
from promptgroup_router.feed.prompt_routes import Expired, RouteChange, Routes, RouteSource
from support.tables import group, revision, table

REF = PromptRef("ConfigMap", "support-prompt")
NAMED = revision(known=False, prompt_from=REF)
SOURCE = RouteSource("chat", REF, NAMED.fingerprint)


def route(name="support", version="1", spec=None):
    return {
        "metadata": {"name": name, "resourceVersion": version},
        "spec": encode_group(group(name, NAMED)) if spec is None else spec,
    }


def listed(*items, version="10"):
    return {"metadata": {"resourceVersion": version}, "items": list(items)}


def event(kind, item):
    return {"type": kind, "object": item}


def names(routes):
    return [f"{each.namespace}/{each.name}" for each in routes.table().groups]


def test_a_list_replaces_what_its_namespace_had():
    routes = Routes()
    assert routes.list("chat", listed(route("a"), route("b"))) == RouteChange("10")
    routes.list("other", listed(route("a")))
    assert names(routes) == ["chat/a", "chat/b", "other/a"]
    routes.list("chat", listed(route("b")))
    assert names(routes) == ["chat/b", "other/a"]


def test_events_change_one_route_and_say_where_to_go_on():
    routes = Routes()
    assert routes.event("chat", event("ADDED", route("a", "11"))) == RouteChange("11")
    changed = route("a", "12", encode_group(group("a", NAMED, model="other")))
    assert routes.event("chat", event("MODIFIED", changed)) == RouteChange("12")
    assert routes.table().groups[0].model == "other"
    assert routes.event("chat", event("BOOKMARK", {"metadata": {"resourceVersion": "20"}})) == RouteChange("20")
    assert names(routes) == ["chat/a"]
    assert routes.event("chat", event("DELETED", route("a", "21"))) == RouteChange("21")
    assert names(routes) == []


def test_a_route_that_cannot_be_read_keeps_its_last_good_value():
    routes = Routes()
    routes.list("chat", listed(route("a"), route("b")))
    change = routes.event("chat", event("MODIFIED", route("a", "11", {"format": 3})))
    assert change.version == "11"
    assert "chat/a: format is 3" in change.problems[0]
    change = routes.list("chat", listed(route("a", spec={}), route("c", spec="x"), "no object"))
    assert len(change.problems) == 3
    assert names(routes) == ["chat/a"]


def test_a_table_is_made_in_steps_that_read_what_has_changed_alone(monkeypatch):
    read, encode = [], prompt_routes.encode_table

    def counted(table):
        read.extend(each.name for each in table.groups)
        return encode(table)

    monkeypatch.setattr(prompt_routes, "encode_table", counted)
    routes = Routes()
    routes.list("chat", listed(*(route(name) for name in "abc")))
    before = routes.table()
    assert read == ["a", "b", "c"]
    routes.event("chat", event("MODIFIED", route("b", "12", encode_group(group("b", NAMED, model="other")))))
    steps = routes.table_steps()
    next(steps)
    routes.event("chat", event("DELETED", route("c", "13")))  # between two steps
    while (made := next(steps, "ended")) is None:
        pass
    assert made == "ended"
    assert read == ["a", "b", "c", "b"]
    after = routes.table()
    assert [each.name for each in after.groups] == ["a", "b"]
    assert after.groups[0] is before.groups[0]
    assert after.version != before.version


def test_a_route_is_read_in_steps_of_a_slot():
    spec = encode_group(group("a", revision(slots=50)))
    steps = Routes().event_steps("chat", event("ADDED", route("a", spec=spec)))
    assert len(list(steps)) == 100  # decoded, and then checked


@pytest.mark.parametrize(
    "what", [None, {}, {"type": "ADDED"}, {"type": "NEW", "object": {}}, {"type": "ERROR", "object": {"code": 500}}]
)
def test_what_is_no_event_is_refused(what):
    with pytest.raises(TableError):
        Routes().event("chat", what)


@pytest.mark.parametrize("what", [None, [], {}, {"items": {}}])
def test_what_is_no_list_is_refused(what):
    with pytest.raises(TableError):
        Routes().list("chat", what)


def test_a_version_that_is_gone_asks_for_a_new_list():
    with pytest.raises(Expired):
        Routes().event("chat", event("ERROR", {"kind": "Status", "code": 410}))


def test_prompts_are_missing_until_they_are_learned_and_while_they_are_named():
    routes = Routes()
    routes.list("chat", listed(route()))
    assert routes.missing() == {SOURCE}
    prompt = revision().prompt
    routes.learn(SOURCE, prompt)
    assert routes.missing() == set()
    assert routes.table().groups[0].revisions[0].prompt == prompt
    routes.list("chat", listed())
    assert routes.missing() == set()
    routes.list("chat", listed(route()))
    assert routes.missing() == {SOURCE}


def test_the_version_of_a_table_is_that_of_its_contents():
    routes, same = Routes(), Routes()
    routes.list("chat", listed(route("a"), route("b")))
    same.list("chat", listed(route("b", "77"), route("a", "78"), version="99"))
    assert routes.table() == same.table()
    before = routes.table().version
    routes.learn(SOURCE, revision().prompt)
    assert routes.table().version != before


def test_a_restart_begins_with_the_copy_of_the_served_namespaces():
    copy = table(group("a", revision(prompt_from=REF)), group("b", namespace="other"))
    routes = Routes(copy, ("chat",))
    assert names(routes) == ["chat/a"]
    assert routes.missing() == set()
    routes.list("chat", listed(route("a")))
    assert routes.table().groups[0].revisions[0].prompt == revision().prompt


def slots(count):
    return {"revisions": [{"slots": [{"slot": number} for number in range(count)]}]}


def test_routes_beyond_what_a_router_serves_keep_what_was_served():
    routes = Routes()
    routes.list("chat", listed(route("a")))
    change = routes.event("chat", event("MODIFIED", route("a", spec=slots(32_769))))
    assert "32769 slots, and a router serves 16384 and 32768" in change.problems[0]
    assert names(routes) == ["chat/a"]
    # a namespace that is full takes no room of others, and has room again once its routes are gone
    change = routes.list("chat", listed(*(route(f"r{number}") for number in range(10))))
    assert change.problems == ()
    assert len(names(routes)) == 10
