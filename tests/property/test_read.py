"""Whatever names PromptGroups and PromptRoutes refer to, nothing is asked for outside of their namespace."""

import asyncio
import contextlib
import re
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st
from urllib3.util import parse_url

from promptgroup_operator.base.errors import ClusterError, ImpossibleNameError, StoredSpecError
from promptgroup_operator.kube.api_server import object_path
from promptgroup_operator.kube.store import Store
from promptgroup_operator.observe.group_reader import GroupReader
from promptgroup_operator.observe.unwatched import UnwatchedObjects
from promptgroup_operator.world.lookup import KINDS
from promptgroup_operator.world.snapshot import Key
from promptgroup_operator.world.trimmed import trimmed
from promptgroup_router.access.keyring import SecretRef
from promptgroup_router.feed.secret_feed import FolderSecrets, KubeSecrets, SecretError
from support.builders import CREATED
from support.stores import show

KEY = Key("chat", "support")
HOME = "/api/v1/namespaces/chat/"
OWN = re.compile(r"/(api|apis/[a-z0-9.]+)/v1/namespaces/chat/[a-z]+/[-a-z0-9.]+")

PARTS = ["..", ".", "/", "%2e%2e", "%2F", "\\", "?", "#", ";", "\n", "db", "victim", "secrets", "A", "-", "\u0130", " "]
NAMES = st.text(max_size=20) | st.lists(st.sampled_from(PARTS), max_size=8).map("".join)
WAY_OUT = "../../victim/secrets/db"


class Api:
    """Notes the paths as they are sent, and has nothing."""

    def __init__(self):
        self.paths = []

    def request(self, method, path, *args, **options):
        self.paths.append(sent(path))
        raise ClusterError("none", status=404)

    async def get(self, path):
        self.paths.append(sent(path))
        return {"data": {}}


def sent(path):
    """Return the path that urllib3 sends: it resolves `..`."""
    return parse_url(f"https://server{path}").path


def observed(spec):
    stores = {kind: Store(kind, lambda _: None) for kind in KINDS}
    metadata = {"namespace": "chat", "name": "support", "uid": "u", "generation": 1, "creationTimestamp": CREATED}
    stored = {"metadata": {**metadata, "resourceVersion": "1"}, "spec": spec}
    show(stores["PromptGroup"], [trimmed(stored, "PromptGroup")], "1")
    api = Api()
    with contextlib.suppress(StoredSpecError):
        GroupReader(api, stores).observe(KEY)
    return api.paths


@given(st.lists(NAMES, min_size=9, max_size=9), NAMES)
@example([WAY_OUT] * 9, "key")
def test_a_group_is_read_by_requests_for_its_own_namespace_whatever_it_refers_to(names, key):
    a, b, c, d, e, f, g, h, i = names

    def secret(name):
        return {"secretKeyRef": {"name": name, "key": key}}

    whole = {
        "model": "m",
        "prompt": {"systemFrom": secret(a), "toolsFrom": {"configMapKeyRef": {"name": b, "key": key}}},
        "engine": {
            "image": "i",
            "credentialFrom": {"name": c, "key": key},
            "tls": {"secretName": d, "caFrom": secret(e)},
        },
        "access": {"type": "APIKey", "apiKey": {"secrets": [f]}},
        "cache": {"offload": {"memory": "1Gi", "claimName": g}},
        "gateway": {"inferencePool": h},
    }
    plain = {"model": "m", "prompt": {"systemFrom": secret(i)}, "engine": {"image": "i"}}
    for path in [*observed(whole), *observed(plain)]:
        assert OWN.fullmatch(path), path


@given(NAMES, NAMES)
@example("chat", WAY_OUT)
@example("../..", "db")
def test_the_path_of_an_object_leads_to_that_object_and_to_no_other(namespace, name):
    with contextlib.suppress(ImpossibleNameError):
        path = object_path("Secret", namespace or "chat", name)
        assert sent(path) == path == f"/api/v1/namespaces/{namespace or 'chat'}/secrets/{name}"
        assert path.count("/") == 6


@given(NAMES)
@example(WAY_OUT)
def test_what_a_pod_or_a_deployment_refers_to_is_read_in_its_namespace(name):
    api = Api()
    assert UnwatchedObjects(api).values(KEY, "Secret", name) is None
    assert all(path == f"{HOME}secrets/{name}" for path in api.paths)


@given(NAMES, NAMES)
@example("chat", WAY_OUT)
@example("..", "passwords")
def test_a_router_reads_no_secret_but_the_one_that_a_route_names(namespace, name):
    api = Api()
    ref = SecretRef(namespace, name)
    asyncio.run(KubeSecrets(api).read(ref))
    assert all(path == f"/api/v1/namespaces/{namespace}/secrets/{name}" for path in api.paths)
    try:
        # two levels above this file's folder there are files for whoever gets out
        assert asyncio.run(FolderSecrets(Path(__file__).parent / "none").read(ref)) is None
    except SecretError as error:
        raise AssertionError(f"{name!r} led out of the folder") from error
