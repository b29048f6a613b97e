import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_local.cluster.nodeagent.pods import environment
from promptgroup_local.cluster.nodeagent.pods.environment import Unresolved

POD = {
    "metadata": {
        "name": "p",
        "namespace": "n",
        "uid": "u",
        "labels": {"b": 'x"y', "a": "1"},
        "annotations": {"k": "v"},
    },
    "spec": {"nodeName": "node", "serviceAccountName": "sa"},
}


def build(container: dict, objects: dict | None = None, mounts: dict | None = None) -> dict[str, str]:
    return environment.build(
        container, POD, pod_ip="127.64.0.2", objects=objects or {}, base={"PATH": "/bin"}, mounts=mounts or {}
    )


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)-$(B)", "1-$(B)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$A ${A} $( A)", "$A ${A} $( A)"),
        ("$(A", "$(A"),
        ("", ""),
    ],
)
def test_expansion_follows_the_container_spec(text: str, expanded: str) -> None:
    assert environment.expand(text, {"A": "1"}) == expanded


@given(st.text(alphabet="ab c/-_.{}()", max_size=30))
def test_text_without_a_dollar_is_never_changed(text: str) -> None:
    assert environment.expand(text, {"a": "1"}) == text


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "n"),
        ("metadata.uid", "u"),
        ("metadata.labels['a']", "1"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['k']", "v"),
        ("metadata.labels", 'a="1"\nb="x\\"y"'),
        ("spec.nodeName", "node"),
        ("spec.serviceAccountName", "sa"),
        ("status.podIP", "127.64.0.2"),
        ("status.hostIP", "127.0.0.1"),
    ],
)
def test_a_field_reference_has_the_pods_value(path: str, value: str) -> None:
    assert environment.field(POD, path, "127.64.0.2") == value


def test_an_unknown_field_is_named() -> None:
    with pytest.raises(Unresolved, match=r"status\.phase"):
        environment.field(POD, "status.phase", "")


def test_variables_refer_to_those_before_them_and_to_the_base() -> None:
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)$(C)$(PATH)"}, {"name": "C", "value": "3"}]
    assert build({"env": env}) == {"PATH": "/bin", "A": "1", "B": "1$(C)/bin", "C": "3"}


def test_objects_give_single_keys_and_whole_sets() -> None:
    container = {
        "envFrom": [{"configMapRef": {"name": "c"}, "prefix": "X_"}, {"secretRef": {"name": "s"}}],
        "env": [{"name": "K", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
    }
    assert environment.references([container]) == {("ConfigMap", "c"), ("Secret", "s")}
    objects = {("ConfigMap", "c"): {"a": "1"}, ("Secret", "s"): {"k": "2"}}
    assert build(container, objects) == {"PATH": "/bin", "X_a": "1", "k": "2", "K": "2"}


@pytest.mark.parametrize(
    ("container", "message"),
    [
        ({"envFrom": [{"secretRef": {"name": "s"}}]}, 'Secret "s" not found'),
        (
            {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]},
            'key k of ConfigMap "c"',
        ),
        ({"env": [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}]}, "valueFrom of A"),
    ],
)
def test_what_is_missing_is_named(container: dict, message: str) -> None:
    with pytest.raises(Unresolved, match=message):
        build(container)


def test_what_is_optional_may_be_missing() -> None:
    key = {"name": "c", "key": "k", "optional": True}
    container = {
        "envFrom": [{"secretRef": {"name": "s", "optional": True}}],
        "env": [{"name": "A", "valueFrom": {"configMapKeyRef": key}}],
    }
    assert build(container) == {"PATH": "/bin"}


MOUNTS = {"/etc/a": "/pod/a", "/etc/a/b": "/pod/b", "/tmp": "/pod/tmp", "/pod": "/pod/pod"}


@pytest.mark.parametrize(
    ("text", "relocated"),
    [
        ("/etc/a", "/pod/a"),
        ("/etc/a/file", "/pod/a/file"),
        ("/etc/a/b/file", "/pod/b/file"),
        ("/etc/ab", "/etc/ab"),
        ("/etc/a.conf", "/etc/a.conf"),
        ("/usr/etc/a", "/usr/etc/a"),
        ("--dir=/etc/a", "--dir=/pod/a"),
        ("/etc/a:/etc/a/b:/bin", "/pod/a:/pod/b:/bin"),
        ("cat '/etc/a' \"/tmp/x\" /etc/a", "cat '/pod/a' \"/pod/tmp/x\" /pod/a"),
        ("file:///etc/a/f", "file:///etc/a/f"),
        ("../etc/a", "../etc/a"),
    ],
)
def test_mount_paths_are_replaced_once_where_a_path_begins(text: str, relocated: str) -> None:
    assert environment.relocate(text, MOUNTS) == relocated


def test_only_a_containers_own_variables_are_relocated() -> None:
    container = {"env": [{"name": "DIR", "value": "/bin/x"}, {"name": "P", "value": "$(DIR):$(PATH)"}]}
    assert build(container, mounts={"/bin": "/pod/bin"}) == {
        "PATH": "/bin",
        "DIR": "/pod/bin/x",
        "P": "/pod/bin/x:/bin",
    }
