import pytest

from promptgroup_operator.base.errors import StoredSpecError
from promptgroup_operator.kube.read import ClusterReader
from promptgroup_operator.kube.store import KINDS, WHOLE_SPEC, Store, normalized
from promptgroup_operator.world.snapshot import Key
from support.builders import CREATED

KEY = Key("chat", "support")


class Pages:
    """A collection in pages, and nothing else."""

    def __init__(self, *pages):
        self.pages, self.asked = list(pages), []

    def request(self, method, path, *, query, accept):
        self.asked.append((query.get("limit"), query.get("continue")))
        items = self.pages.pop(0)
        rest = {"continue": f"token-{len(self.pages)}"} if self.pages else {}
        return {"metadata": {"resourceVersion": "9", **rest}, "items": items}


def router(name, *, running=True):
    state = {"running": {}} if running else {"waiting": {}}
    return {
        "metadata": {"namespace": "chat", "name": name},
        "spec": {"containers": [{"name": "router", "ports": [{"name": "admin", "containerPort": 9090}]}]},
        "status": {"podIP": "10.0.0.1", "containerStatuses": [{"containerID": name, "state": state}]},
    }


def test_lists_are_read_in_pages():
    pages = Pages([router("a"), router("b", running=False)], [router("c")])
    reader = ClusterReader(pages, {})
    assert reader.list_routers("chat") == {"a": "10.0.0.1:9090", "c": "10.0.0.1:9090"}
    assert pages.asked == [("500", None), ("500", "token-1")]


def test_a_group_that_an_older_version_stored_names_the_field_and_never_its_value():
    stores = {kind: Store(kind, lambda _: None) for kind in KINDS}
    metadata = {"namespace": "chat", "name": "support", "uid": "u", "generation": 3, "creationTimestamp": CREATED}
    spec = {"model": 7, "prompt": {"system": {"secret": "words"}}}
    stores["PromptGroup"].replace("", [{"metadata": {**metadata, "resourceVersion": "1"}, "spec": spec}], "1")
    with pytest.raises(StoredSpecError, match=r"spec\.model: .*spec\.prompt\.system: ") as refused:
        ClusterReader(Pages(), stores).observe(KEY)
    assert refused.value.generation == 3
    assert "words" not in str(refused.value)
    assert refused.value.__cause__ is None


def group(generation=1, version=1, **prompt):
    metadata = {"namespace": "chat", "name": "support", "uid": "u", "creationTimestamp": CREATED}
    spec = {"model": "m", "prompt": prompt, "engine": {"image": "i"}, "replicas": 1}
    return {"metadata": metadata | {"generation": generation, "resourceVersion": str(version)}, "spec": spec}


def test_a_long_prompt_is_read_when_a_pass_needs_it_and_not_kept_by_the_store():
    stores = {kind: Store(kind, lambda _: None) for kind in KINDS}
    long, longer = "a" * WHOLE_SPEC, "b" * WHOLE_SPEC
    pages = Pages([group(system=long)])
    reader = ClusterReader(pages, stores)

    def told(version, generation, text):
        kept = normalized(
            group(generation, version, system=text) | {"status": {"revision": str(version)}}, "PromptGroup"
        )
        assert text not in str(kept)
        stores["PromptGroup"].handle_event("", "MODIFIED", kept)

    told(1, 1, long)
    assert reader.observe(KEY).group.spec.prompt.system == long
    told(2, 1, long)  # its status has changed: nothing is read again
    state = reader.observe(KEY)
    assert (state.group.spec.prompt.system, state.group.status) == (long, {"revision": "2"})
    assert len(pages.asked) == 1
    told(3, 2, longer)
    pages.pages = [[group(2, 3, system=longer)]]
    assert reader.observe(KEY).group.spec.prompt.system == longer
    pages.pages = [[]]
    told(4, 3, longer)
    assert reader.observe(KEY) is None  # deleted meanwhile
