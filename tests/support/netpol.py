"""What NetworkPolicies allow, by reading them: https://kubernetes.io/docs/concepts/services-networking/network-policies/."""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Policy = Mapping[str, Any]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class End:
    """A pod, or what is outside of the cluster (no namespace)."""

    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[str, int] = field(default_factory=dict)
    """Named ports of its containers."""
    address: str = "203.0.113.9"


@dataclass(frozen=True, slots=True)
class Connection:
    """Somebody who connects to a port of somebody."""

    source: End
    target: End
    port: int
    protocol: str

    def ends(self, direction: str) -> tuple[End, End]:
        """Whose policies count in that direction, and who is at the other end."""
        return (self.source, self.target) if direction == "Egress" else (self.target, self.source)


def allowed(policies: Iterable[Policy], source: End, target: End, port: int, protocol: str = "TCP") -> bool:
    """Whether the source's policies let it out and the target's let it in."""
    every, wanted = list(policies), Connection(source, target, port, protocol)
    return _side(every, "Egress", wanted) and _side(every, "Ingress", wanted)


def _side(policies: Iterable[Policy], direction: str, wanted: Connection) -> bool:
    subject, _ = wanted.ends(direction)
    if not subject.namespace:
        return True
    isolating = [
        each
        for each in policies
        if each["metadata"]["namespace"] == subject.namespace
        and direction in each["spec"]["policyTypes"]
        and _selected(each["spec"]["podSelector"], subject.labels)
    ]
    return not isolating or any(
        _through(rule, direction, each["metadata"]["namespace"], wanted)
        for each in isolating
        for rule in each["spec"].get(direction.lower(), [])
    )


def _through(rule: Mapping[str, Any], direction: str, namespace: str, wanted: Connection) -> bool:
    _, other = wanted.ends(direction)
    peers, named = "to" if direction == "Egress" else "from", wanted.target.ports
    return (peers not in rule or any(_peer(each, namespace, other) for each in rule[peers])) and (
        "ports" not in rule
        or any(
            each.get("protocol", "TCP") == wanted.protocol
            and _first_port(each, named) <= wanted.port <= _last_port(each, named)
            for each in rule["ports"]
        )
    )


def _first_port(rule: Mapping[str, Any], named: Mapping[str, int]) -> int:
    return named.get(rule["port"], 65536 if isinstance(rule["port"], str) else rule["port"])


def _last_port(rule: Mapping[str, Any], named: Mapping[str, int]) -> int:
    return rule.get("endPort", _first_port(rule, named))


def _peer(peer: Mapping[str, Any], namespace: str, other: End) -> bool:
    if "ipBlock" in peer:
        # blocks are for addresses outside of the cluster; Cilium, for one, matches no pod by them
        return not other.namespace and _in_block(peer["ipBlock"], ipaddress.ip_address(other.address))
    if not other.namespace:
        return False
    if "namespaceSelector" in peer:
        inside = _selected(peer["namespaceSelector"], {"kubernetes.io/metadata.name": other.namespace})
    else:
        inside = other.namespace == namespace
    return inside and _selected(peer.get("podSelector", {}), other.labels)


def _in_block(block: Mapping[str, Any], address: Address) -> bool:
    return address in ipaddress.ip_network(block["cidr"]) and not any(
        address in ipaddress.ip_network(each) for each in block.get("except", ())
    )


def _selected(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    wanted = selector.get("matchLabels", {}).items() <= labels.items()
    expressions = selector.get("matchExpressions", [])
    assert {each["operator"] for each in expressions} <= {"Exists", "In"}, "teach this reader the other operators first"
    return wanted and all(
        each["key"] in labels and (each["operator"] == "Exists" or labels[each["key"]] in each["values"])
        for each in expressions
    )
