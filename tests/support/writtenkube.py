"""An API server in memory, with the reader and the writer of a pass."""

from promptgroup_operator.act.group_writer import GroupWriter
from promptgroup_operator.base.errors import ClusterError
from promptgroup_operator.observe.group_reader import GroupReader
from promptgroup_operator.plan import plan
from promptgroup_operator.world.snapshot import Key
from promptgroup_operator.world.trimmed import trimmed
from support.builders import CREATED, NOW, TEXT, world

KEY = Key("chat", "support")


STRATEGIC = "application/strategic-merge-patch+json"


class Server:
    """Stores what is applied under its path, patches by merging the metadata, counts what is read."""

    def __init__(self):
        self.objects = {}
        self.version = 100
        self.reads = []

    def put(self, path, found):
        self.version += 1
        metadata = {"uid": f"uid-{path}", "creationTimestamp": CREATED, "generation": 1, **found["metadata"]}
        self.objects[path] = {**found, "metadata": {**metadata, "resourceVersion": str(self.version)}}
        return self.objects[path]

    def request(self, method, path, body=None, content_type=None, query=None, *, limit=None):
        path = path.removesuffix("/status")
        if method == "GET":
            self.reads.append(path)
        if method == "PATCH" and content_type == STRATEGIC:
            known = self.objects[path]
            labels = known["metadata"]["labels"] | body["metadata"].get("labels", {})
            metadata = {**known["metadata"], **body["metadata"], "labels": labels}
            return self.put(
                path, {**known, "metadata": metadata, "status": {**known["status"], **body.get("status", {})}}
            )
        if method == "PATCH":
            return self.put(path, {**self.objects.get(path, {}), **body})
        if method == "DELETE":
            del self.objects[path]
            return {}
        if path not in self.objects:
            raise ClusterError("none", status=404)
        return self.objects[path]


class Cluster:
    """Reader and writer, as a pass has them."""

    def __init__(self, server, term, stores, **fields):
        self.reader = GroupReader(server, stores, **fields)
        self.writer = GroupWriter(server, term, stores, self.reader.unwatched.cache)

    def __getattr__(self, name):
        return getattr(self.reader if hasattr(self.reader, name) else self.writer, name)


def promptgroup(name, **spec):
    base = {"model": "llama", "prompt": {"system": TEXT}, "engine": {"image": "vllm"}, "replicas": 2}
    return {"kind": "PromptGroup", "metadata": {"namespace": "chat", "name": name}, "spec": {**base, **spec}}


def pod(name):
    metadata = {"namespace": "chat", "name": name, "labels": {"promptgroup.dev/group": "support"}}
    return {"kind": "Pod", "metadata": metadata, "status": {"podIP": "10.0.0.1"}}


PLURALS = {
    "PromptGroup": "/apis/promptgroup.dev/v1alpha1/namespaces/chat/promptgroups",
    "Pod": "/api/v1/namespaces/chat/pods",
}


def deliver(server, stores, found):
    """Somebody else wrote it, and the watch tells of it."""
    stored = server.put(f"{PLURALS[found['kind']]}/{found['metadata']['name']}", found)
    stores[found["kind"]].put(trimmed(stored, found["kind"]))


def create(cluster):
    """What a first pass writes."""
    todo = plan.decide(world(of=cluster.observe(KEY).group), NOW)
    for manifest in (*todo.objects, todo.route):
        cluster.apply(manifest, None)
