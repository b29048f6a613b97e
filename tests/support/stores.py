"""A store as the API server's lists and events fill it."""

from collections.abc import Iterable
from typing import Any

from promptgroup_operator.kube.store import Store


def show(store: Store, objects: Iterable[dict[str, Any]], version: int | str, namespace: str = "") -> None:
    """A list of a namespace, or of all: what it does not show is gone."""
    listed = {(each["metadata"]["namespace"], each["metadata"]["name"]): each for each in objects}
    store.keep_only(namespace, listed, int(version))
    for each in listed.values():
        store.put(with_uid(each))


def with_uid(found: dict[str, Any]) -> dict[str, Any]:
    """The object with a uid, which a test need not care for."""
    return {**found, "metadata": {"uid": found["metadata"]["name"], **found["metadata"]}}
