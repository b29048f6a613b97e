"""Addresses of a node and its pods, from 127.64.0.0/10.

Linux answers for all of 127.0.0.0/8 on the loopback interface, so every pod can have an address, and every port on it,
with no privilege. A node takes a /18 block. It holds the kubelet's port on the block's first address, so that no other
cluster on this machine takes the same block.
"""

import ipaddress
import random
import socket

PODS = ipaddress.IPv4Network("127.64.0.0/10")
"""Far from 127.0.0.1 and 127.0.1.1, which other programs use."""
BLOCK_PREFIX = 18
"""16382 pods before an address is used again: 256 nodes on one machine."""
KUBELET_PORT = 10250


class NoAddress(Exception):  # noqa: N818
    """Every block is in use."""


class Block:
    """A node's addresses, in turn: each is reused as late as possible, so that no client reaches another pod there."""

    def __init__(self) -> None:
        blocks = list(PODS.subnets(new_prefix=BLOCK_PREFIX))
        for block in random.sample(blocks, len(blocks)):
            self.address = str(block[1])
            held = socket.socket()
            try:
                held.bind((self.address, KUBELET_PORT))
            except OSError:
                held.close()
                continue
            self.socket = held
            """Bound to the kubelet's port on the first address."""
            self._addresses = [str(address) for address in block][2:-1]
            self._used: set[str] = set()
            return
        raise NoAddress(f"all {len(blocks)} blocks of {PODS} are in use: stop a local cluster")

    def take(self) -> str:
        """An address that no pod of the node has."""
        for _ in self._addresses:
            address = self._addresses.pop(0)
            self._addresses.append(address)
            if address not in self._used:
                self._used.add(address)
                return address
        raise NoAddress(f"all {len(self._addresses)} pod addresses of the node are in use")

    def give_back(self, address: str) -> None:
        """Release the address of a removed pod."""
        self._used.discard(address)

    def close(self) -> None:
        """Release the block."""
        self.socket.close()
