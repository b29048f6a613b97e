import ipaddress
from collections.abc import Iterator

import pytest

from promptgroup_local.cluster.nodeagent import addresses
from promptgroup_local.cluster.nodeagent.addresses import Block, NoAddress


@pytest.fixture
def block() -> Iterator[Block]:
    made = Block()
    yield made
    made.close()


def test_two_nodes_never_share_an_address(block: Block) -> None:
    other = Block()
    networks = [ipaddress.ip_network((each.address, 18), strict=False) for each in (block, other)]
    other.close()
    assert not networks[0].overlaps(networks[1])
    assert all(network.subnet_of(addresses.PODS) for network in networks)
    taken = [block.take() for _ in range(50)]
    assert all(ipaddress.ip_address(address) in networks[0] for address in taken)
    assert len({*taken, block.address}) == 51


def test_an_address_is_used_again_as_late_as_can_be(block: Block) -> None:
    first = block.take()
    block.give_back(first)
    later = [block.take() for _ in range(1000)]
    assert first not in later


def test_an_address_in_use_is_passed_over_and_the_end_is_an_error(
    monkeypatch: pytest.MonkeyPatch, block: Block
) -> None:
    monkeypatch.setattr(block, "_addresses", ["127.64.0.2", "127.64.0.3"])
    assert [block.take(), block.take()] == ["127.64.0.2", "127.64.0.3"]
    with pytest.raises(NoAddress, match="all 2 pod addresses"):
        block.take()
    block.give_back("127.64.0.3")
    assert block.take() == "127.64.0.3"
