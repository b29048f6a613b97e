from promptgroup_operator.kube.guest_index import GuestIndex
from promptgroup_operator.world.snapshot import Key

HOST = Key("chat", "pool")


def test_guests_of_a_host_in_its_namespace():
    index = GuestIndex()
    index.put(Key("chat", "a"), "pool")
    index.put(Key("chat", "b"), "pool")
    index.put(Key("other", "c"), "pool")
    index.put(Key("chat", "pool"), "")
    assert set(index.of(HOST)) == {Key("chat", "a"), Key("chat", "b")}


def test_a_guest_that_is_gone_or_has_another_host_is_none():
    index = GuestIndex()
    index.put(Key("chat", "a"), "pool")
    index.put(Key("chat", "a"), "other")
    assert index.of(HOST) == []
    index.put(Key("chat", "a"), "")
    assert index.of(Key("chat", "other")) == []
