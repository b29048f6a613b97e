"""Read the other groups of a namespace: those with the same prompt, those with conflicting aliases, and guests.

For a group whose status reports no prompt yet, the prompt that its own latest pass read is used.
"""

from collections.abc import Mapping

from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_operator.kube.store import Store
from promptgroup_operator.world import lookup
from promptgroup_operator.world.snapshot import GroupObject, Key, Manifest, OtherGroup, Sibling
from promptgroup_operator.world.trimmed import host_of


class Neighbours:
    """All groups and their routes, as the stores have them. Safe to use from many threads."""

    def __init__(self, stores: Mapping[str, Store]) -> None:
        self._stores = stores
        self._prompts: dict[Key, Fingerprint] = {}
        """Group → fingerprint of the prompt that its latest pass read; empty if there was none to serve."""

    def note_prompt(self, key: Key, fingerprint: Fingerprint) -> None:
        """Record the prompt that a pass read, before it reads the others: so one of two groups detects the conflict."""
        self._prompts[key] = fingerprint

    def forget(self, key: Key) -> None:
        """Delete the state of a group that does not exist any more."""
        self._prompts.pop(key, None)

    def has_group(self, key: Key) -> bool:
        """Return True if there is a PromptGroup of this name."""
        return self._stores["PromptGroup"].get(key.namespace, key.name) is not None

    def routes(self, namespace: str) -> dict[Key, Manifest]:
        """Return the PromptRoutes of a namespace whose groups exist."""
        routes = self._stores["PromptRoute"].list_at(namespace)
        keys = ((Key(namespace, route["metadata"]["name"]), route) for route in routes)
        return {key: route for key, route in keys if self.has_group(key)}

    def guests(self, host: Key) -> list[Key]:
        """Return the guests of a group."""
        guests = self._stores["PromptGroup"].list_at(lookup.guests(host))
        return [Key(host.namespace, guest["metadata"]["name"]) for guest in guests]

    def guest_routes(self, host: Key) -> list[Manifest]:
        """Return the PromptRoutes of a group's guests."""
        guests, routes_by_name = self._stores["PromptGroup"].list_at(lookup.guests(host)), self._stores["PromptRoute"]
        routes = (routes_by_name.get(host.namespace, guest["metadata"]["name"]) for guest in guests)
        return [route for route in routes if route is not None]

    def siblings(self, group: GroupObject, fingerprint: Fingerprint) -> tuple[Sibling, ...]:
        """Return the groups of the same model that have the prompt, or may have it because no pass has read theirs."""
        namespace, model = group.key.namespace, group.spec.model
        stored = self._stores["PromptGroup"]
        # A guest may omit its model, which is then that of its host.
        manifests = {
            other["metadata"]["name"]: other
            for name in (model, "")
            for place in lookup.prompts(namespace, name, fingerprint)
            for other in stored.list_at(place)
        }
        siblings = (
            self._sibling(key, other)
            for key, other in ((Key(namespace, name), other) for name, other in manifests.items())
            # most groups of many that were created together: their passes have read other prompts
            if self._prompts.get(key, fingerprint) == fingerprint or _is_observed(other)
            if key != group.key and self._model(other) == model and "deletionTimestamp" not in other["metadata"]
        )
        return tuple(other for other in siblings if not other.observed or other.fingerprint == fingerprint)

    def others(self, group: GroupObject) -> tuple[OtherGroup, ...]:
        """Return the other groups to which an alias of the group may refer as well: by name, model or alias."""
        key, aliases = group.key, group.spec.model_aliases
        names = {*aliases, *(alias.removeprefix(f"{key.namespace}/") for alias in aliases)}
        manifests = {
            other["metadata"]["name"]: other
            for name in names
            for other in self._stores["PromptGroup"].list_at(lookup.names_of_model(key.namespace, name))
        }
        return tuple(
            OtherGroup(
                name=other["metadata"]["name"],
                created=other["metadata"]["creationTimestamp"],
                model=self._model(other),
                aliases=tuple(other["spec"].get("modelAliases", ())),
            )
            for _, other in sorted(manifests.items())
            if other["metadata"]["name"] != key.name and "deletionTimestamp" not in other["metadata"]
        )

    def _sibling(self, key: Key, group: Manifest) -> Sibling:
        read, observed = self._prompts.get(key), _is_observed(group)
        reported = Fingerprint(group.get("status", {}).get("fingerprint", ""))
        return Sibling(
            name=key.name,
            created=group["metadata"]["creationTimestamp"],
            fingerprint=reported if observed or read is None else read,
            observed=observed or read is not None,
        )

    def _model(self, group: Manifest) -> str:
        """Return the model of a PromptGroup; for a guest that names none, its host's."""
        model, name = group["spec"].get("model", ""), host_of(group)
        if model or not name:
            return str(model)
        serving = self._stores["PromptGroup"].get(group["metadata"]["namespace"], name)
        return str(serving["spec"].get("model", "")) if serving is not None else ""


def _is_observed(group: Manifest) -> bool:
    """Return True if a pass has written the status of a PromptGroup."""
    return int(group.get("status", {}).get("observedGeneration", -1)) >= 0
