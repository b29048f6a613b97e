"""Kopf's stores before an API server that changes, forgets, cuts and refuses: they come to equal what it has."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from promptgroup_operator.kube import resync, session
from support.kopfrun import until, watching
from support.rawobjects import kubeconfig
from support.scriptedkube import Answer, ScriptedKube, refusal, scripted_kube
from support.watchserver import GONE, WatchServer, event, found

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnraisableExceptionWarning"
    ),  # sockets that Kopf leaves to the loop
]

SECONDS = 30
"""Time within which the stores equal the cluster."""
PODS = [f"pod-{number}" for number in range(4)]
REFUSALS = {
    "unauthorized": refusal(401),
    "forbidden": refusal(403),
    "not found": refusal(404),
    "throttled": refusal(429, Retry_After="0"),
    "broken": refusal(500),
    "not ready": refusal(503),
    "cut": Answer(cut=True),
}


class History(WatchServer):
    """An API server that remembers what its pods went through, as far as it has not forgotten."""

    def __init__(self, kube: ScriptedKube) -> None:
        super().__init__(kube)
        self.events: list[tuple[int, bytes]] = []
        self.forgotten = 0

    def answer(self, path: str, query: dict[str, str]) -> Answer:
        if path.endswith("/pods") and "watch" in query and not self.faults:
            since = int(query["resourceVersion"])
            body = b"".join(told for version, told in self.events if version > since)
            self.watches["pods"] = [GONE if since < self.forgotten else body]
        return super().answer(path, query)

    def change(self, name: str, *, there: bool) -> None:
        with self.lock:
            known = [each["metadata"]["name"] for each in self.objects["pods"]]
            if not there and name not in known:
                return
            self.version += 1
            shown = found("Pod", name, self.version)
            self.objects["pods"] = [each for each in self.objects["pods"] if each["metadata"]["name"] != name]
            self.objects["pods"] += [shown] if there else []
            kind = "DELETED" if not there else "MODIFIED" if name in known else "ADDED"
            self.events.append((self.version, event(kind, shown)))

    def forget(self) -> None:
        with self.lock:
            self.forgotten, self.events = self.version, []

    def refuse(self, how: str, count: int) -> None:
        with self.lock:
            self.faults += [lambda path, _: REFUSALS[how] if path.endswith("/pods") else None] * count

    def shown(self) -> dict[tuple[str, str], int]:
        with self.lock:
            metadata = [each["metadata"] for each in self.objects["pods"]]
        return {(each["namespace"], each["name"]): int(each["resourceVersion"]) for each in metadata}


steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(PODS)),
        st.tuples(st.just("delete"), st.sampled_from(PODS)),
        st.tuples(st.just("forget"), st.none()),
        st.tuples(st.sampled_from(sorted(REFUSALS)), st.integers(1, 4)),
        st.tuples(st.just("seen"), st.none()),
    ),
    min_size=3,
    max_size=25,
)


@settings(
    deadline=None,
    max_examples=8,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(steps=steps)
def test_after_any_faults_the_store_equals_the_cluster(steps):
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory() as folder,
        scripted_kube(Path(folder)) as kube,
    ):
        patch.setattr(session, "PAUSES", (0.02,) * 100)
        patch.setattr(session, "WATCH_SECONDS_APART", 0.02)
        patch.setattr(resync, "RETRY_SECONDS", 0.1)
        patch.setenv("KUBECONFIG", str(kubeconfig(kube, Path(folder), "chat")))
        kube.watches_end = True
        server = History(kube)
        server.change(PODS[0], there=True)
        with watching() as operator:
            pods = operator.stores["Pod"]
            for what, of in steps:
                if what in ("put", "delete"):
                    server.change(of, there=what == "put")
                elif what == "forget":
                    server.forget()
                elif what == "seen":
                    until(lambda: pods.versions() == server.shown(), SECONDS)
                else:
                    server.refuse(what, of)
            until(lambda: pods.versions() == server.shown(), SECONDS)
            assert operator.resync.wait_until_filled()
