import pytest

from promptgroup_operator.kube.store import Store
from promptgroup_operator.world import lookup
from promptgroup_operator.world.snapshot import Key


def names(store, place):
    return [found["metadata"]["name"] for found in store.list_at(place)]


@pytest.mark.parametrize("kind", sorted(lookup.KINDS))
def test_an_object_is_found_by_its_group_and_by_its_namespace(kind):
    store = Store(kind, lambda _: None)
    labels = {"promptgroup.dev/group": "support"}
    metadata = {"namespace": "chat", "name": "support", "uid": "u", "resourceVersion": "1", "labels": labels}
    store.put({"kind": kind, "metadata": metadata})
    assert names(store, Key("chat", "support")) == names(store, "chat") == ["support"]
    assert names(store, "else") == []


def promptgroup(name, version, model="llama", **status):
    metadata = {"namespace": "chat", "name": name, "uid": name, "resourceVersion": str(version)}
    return {"kind": "PromptGroup", "metadata": metadata, "spec": {"model": model}, "status": status}


def test_groups_are_found_by_model_and_prompt_and_those_that_no_pass_has_seen_with_any():
    store = Store("PromptGroup", lambda _: None)

    def found(prompt):
        return {name for place in lookup.prompts("chat", "llama", prompt) for name in names(store, place)}

    for shown in (
        promptgroup("a", 1),
        promptgroup("b", 2, observedGeneration=1, fingerprint="f"),
    ):
        store.put(shown)
    for shown in (
        promptgroup("c", 3, observedGeneration=1, fingerprint="g"),
        promptgroup("d", 4, model="qwen"),
    ):
        store.put(shown)
    assert (found("f"), found("g"), found("h")) == ({"a", "b"}, {"a", "c"}, {"a"})
    for shown in (
        promptgroup("a", 5, observedGeneration=1, fingerprint="g"),
        promptgroup("b", 6, model="qwen"),
    ):
        store.put(shown)
    assert (found("f"), found("g")) == (set(), {"a", "c"})
    store.delete(promptgroup("c", 7))
    assert found("g") == {"a"}
    assert set(names(store, "chat")) == {"a", "b", "d"}


def test_guests_are_looked_up_by_their_host():
    store = Store("PromptGroup", lambda _: None)
    host = Key("chat", "pool")
    for version, (namespace, name, serving) in enumerate(
        [("chat", "b", "pool"), ("chat", "a", "pool"), ("chat", "pool", ""), ("other", "c", "pool")], 1
    ):
        spec = {"engineFrom": {"promptGroup": serving}} if serving else {"engine": {}}
        metadata = {"namespace": namespace, "name": name, "uid": f"{namespace}-{name}", "resourceVersion": str(version)}
        store.put({"metadata": metadata, "spec": spec})
    assert names(store, lookup.guests(host)) == ["a", "b"]
    moved = {"namespace": "chat", "name": "a", "uid": "chat-a", "resourceVersion": "9"}
    store.put({"metadata": moved, "spec": {"engineFrom": {"promptGroup": "larger"}}})
    assert names(store, lookup.guests(host)) == ["b"]
    store.delete({"metadata": {"namespace": "chat", "name": "b", "uid": "chat-b", "resourceVersion": "10"}})
    assert names(store, lookup.guests(host)) == []
    assert names(store, lookup.guests(Key("chat", "larger"))) == ["a"]
