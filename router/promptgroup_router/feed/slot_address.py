"""Decides which addresses of PromptRoutes a router connects to. Does no I/O and reads no clock.

A PromptRoute contains the addresses to which clients' requests are sent. So an address in it must be one that a pod can
have: none of the router's own machine, and none at which a cloud serves a node's credentials.
"""

import ipaddress
from collections.abc import Generator, Sequence
from typing import TypeAlias

from promptgroup_contract.fingerprint import short
from promptgroup_contract.table import Group, TableError

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

METADATA = frozenset(
    ipaddress.ip_address(name)
    for name in (
        "100.100.100.200",  # Alibaba Cloud
        "168.63.129.16",  # Azure: the platform's own services
        "192.0.0.192",  # Oracle Cloud
        "fd00:ec2::254",  # Amazon, IPv6
        "fd20:ce::254",  # Google, IPv6
    )
)
"""Metadata services of clouds; those at 169.254.169.254 are link-local anyway."""


def check_steps(group: Group, allowed: Sequence[Network]) -> Generator[None, None, None]:
    """Check the addresses of a group's slots, one in each step.

    Args:
        group: the group, as decoded.
        allowed: networks whose addresses are taken whatever they are.

    Raises:
        TableError: one is not a pod's; the message names the group, the slot and the address.
    """
    for revision in group.revisions:
        for slot in revision.slots:
            reason = refused(slot.address, allowed) if slot.address else ""
            if reason:
                at = f"{group.namespace}/{group.name}: revision {short(revision.fingerprint)}, slot {slot.index}"
                raise TableError(f"{at}: address {slot.address!r} {reason}")
            yield


def refused(address: str, allowed: Sequence[Network]) -> str:
    """Return why a router does not connect to `host:port`; empty if it does."""
    host = address.rpartition(":")[0].removeprefix("[").removesuffix("]")
    try:
        result = _unmapped(ipaddress.ip_address(host))
    except ValueError:
        return "is no IP address and port"
    if any(result in network for network in allowed):
        return ""
    if result.is_loopback or result.is_link_local or result.is_unspecified or result.is_multicast or result.is_reserved:
        return "is none that a pod can have: it is loopback, link-local, unspecified, multicast or reserved"
    if result in METADATA:
        return "is that of a cloud's metadata service"
    return ""


def _unmapped(address: Address) -> Address:
    """Return the IPv4 address inside an IPv6 one: mapped (RFC 4291), translated (RFC 6052) or of 6to4 (RFC 3056)."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""Prefix behind which a translator reaches IPv4 addresses."""
