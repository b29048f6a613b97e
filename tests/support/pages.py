"""A server of one collection, in pages."""

from promptgroup_operator.base.errors import ClusterError


class Pages:
    """A collection in pages, and nothing else."""

    def __init__(self, *pages):
        self.pages, self.asked = list(pages), []

    def request(self, method, path, *, query=None, accept=""):
        if query is None:
            raise ClusterError("none", status=404)
        self.asked.append((query.get("limit"), query.get("continue")))
        items = self.pages.pop(0)
        rest = {"continue": f"token-{len(self.pages)}"} if self.pages else {}
        return {"metadata": {"resourceVersion": "9", **rest}, "items": items}
