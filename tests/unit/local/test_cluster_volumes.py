import asyncio
import base64
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from promptgroup_local.cluster.nodeagent.api import ApiError
from promptgroup_local.cluster.nodeagent.pods import volumes
from promptgroup_local.cluster.nodeagent.pods.environment import Unresolved


class Server:
    """Answers as the API server does, from a table of paths."""

    def __init__(self, objects: dict[str, dict[str, Any]]) -> None:
        self.objects = objects
        self.bodies: list[Mapping[str, Any]] = []

    async def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        if method == "POST":
            self.bodies.append(body or {})
        if path not in self.objects:
            raise ApiError(404, "not found")
        return self.objects[path]


OBJECTS = {
    "/api/v1/namespaces/n/configmaps/c": {"data": {"a": "1", "b": "2"}, "binaryData": {"z": "AAE="}},
    "/api/v1/namespaces/n/secrets/s": {"data": {"k": base64.b64encode(b"hush").decode()}},
    "/api/v1/namespaces/n/serviceaccounts/sa/token": {"status": {"token": "t"}},
}


def pod(*given: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {"volumes": list(given), "serviceAccountName": "sa"},
    }


def fill(folder: Path, *given: dict[str, Any], server: Server | None = None) -> dict[str, bytes]:
    asyncio.run(volumes.fill(server or Server(OBJECTS), pod(*given), "127.64.0.2", folder))
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_objects_become_files(tmp_path: Path) -> None:
    found = fill(
        tmp_path,
        {"name": "empty", "emptyDir": {}},
        {"name": "all", "configMap": {"name": "c"}},
        {"name": "one", "configMap": {"name": "c", "items": [{"key": "b", "path": "deep/b.txt"}]}},
        {"name": "secret", "secret": {"secretName": "s"}},
        {"name": "me", "downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    )
    assert found == {
        "all/a": b"1",
        "all/b": b"2",
        "all/z": b"\0\1",
        "one/deep/b.txt": b"2",
        "secret/k": b"hush",
        "me/name": b"p",
    }
    assert (tmp_path / "empty").is_dir()
    assert stat.S_IMODE((tmp_path / "secret/k").stat().st_mode) == 0o600


def test_a_projected_token_is_bound_to_its_pod(tmp_path: Path) -> None:
    server = Server(OBJECTS)
    source = {"serviceAccountToken": {"path": "token", "expirationSeconds": 600, "audience": "me"}}
    given = {"name": "t", "projected": {"sources": [source, {"configMap": {"name": "c", "items": []}}]}}
    assert fill(tmp_path, given, server=server)["t/token"] == b"t"
    spec = server.bodies[0]["spec"]
    assert (spec["boundObjectRef"]["uid"], spec["expirationSeconds"], spec["audiences"]) == ("u", 600, ["me"])
    assert volumes.token_sources(pod(given))
    assert not volumes.token_sources(pod({"name": "e", "emptyDir": {}}))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"configMap": {"name": "none"}}, 'ConfigMap "none" not found'),
        ({"secret": {"secretName": "none"}}, 'Secret "none" not found'),
        ({"configMap": {"name": "c", "items": [{"key": "x", "path": "x"}]}}, 'key x of ConfigMap "c"'),
        ({"hostPath": {"path": "/"}}, "volume v: hostPath is not supported"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, given: dict, message: str) -> None:
    with pytest.raises(Unresolved, match=message):
        fill(tmp_path, {"name": "v", **given})


def test_what_is_optional_may_be_missing(tmp_path: Path) -> None:
    assert fill(tmp_path, {"name": "v", "secret": {"secretName": "none", "optional": True}}) == {}


def test_mounts_lie_in_the_pods_folder() -> None:
    given = [{"name": "a", "mountPath": "/etc/a/"}, {"name": "b", "mountPath": "/etc/b", "subPath": "x/y"}]
    assert volumes.mounts({"volumeMounts": given}, Path("/pod")) == {"/etc/a": "/pod/a", "/etc/b": "/pod/b/x/y"}


def test_a_file_is_replaced_at_once(tmp_path: Path) -> None:
    file = tmp_path / "token"
    volumes.write(file, b"old")
    with file.open("rb") as reader:
        volumes.write(file, b"new")
        assert reader.read() == b"old"
    assert file.read_bytes() == b"new"
    assert [each.name for each in tmp_path.iterdir()] == ["token"]
