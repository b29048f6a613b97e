import json
import tracemalloc
from datetime import timedelta

import pytest

from promptgroup_operator.base.errors import ClusterError, UnreadError
from promptgroup_operator.kube.api_server import REQUEST_SECONDS
from promptgroup_operator.observe import get_cache
from promptgroup_operator.observe.get_cache import UNUSED_SECONDS, GetCache
from promptgroup_operator.world.snapshot import Key

KEY = Key("chat", "support")
AGE = 600.0


def secret(name="key", data="1"):
    return {"kind": "Secret", "metadata": {"namespace": "chat", "name": name}, "data": data}


class Server:
    def __init__(self):
        self.now = 100.0
        self.objects = {("Secret", "chat", "key"): secret()}
        self.reads = 0

    def read(self, kind, namespace, name):
        self.reads += 1
        return self.objects.get((kind, namespace, name))


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def copies(server):
    copies = GetCache(server.read, lambda: server.now)
    copies.begin_pass(KEY, "as it was")
    return copies


def get(copies, seconds=AGE):
    return copies.get(KEY, "Secret", "key", seconds)


def test_a_young_copy_is_not_read_again(copies, server):
    assert get(copies) == get(copies) == secret()
    assert server.reads == 1


def test_an_old_one_is(copies, server):
    get(copies)
    server.now += AGE
    get(copies)
    assert server.reads == 2


def test_each_who_asks_says_how_old_it_may_be(copies, server):
    get(copies)
    get(copies, seconds=0)
    assert server.reads == 2


def test_what_users_change_of_the_group_has_everything_read_anew(copies, server):
    get(copies)
    server.now += 1
    copies.begin_pass(KEY, "otherwise")
    get(copies)
    assert server.reads == 2


def test_another_pass_is_no_change(copies, server):
    get(copies)
    server.now += 1
    copies.begin_pass(KEY, "as it was")
    get(copies)
    assert server.reads == 1


def test_that_there_is_none_is_not_remembered(copies, server):
    found = server.objects.pop(("Secret", "chat", "key"))
    assert get(copies) is None
    server.objects["Secret", "chat", "key"] = found
    assert get(copies) == found


def test_one_that_went_takes_its_copy_with_it(copies, server):
    get(copies)
    server.objects.clear()
    server.now += AGE
    assert get(copies) is None
    copies.drop("Secret", "chat", "key")
    assert get(copies) is None


def test_the_own_write_is_the_copy(copies, server):
    copies.record_write("Secret", secret(data="2"))
    assert get(copies) == secret(data="2")
    assert server.reads == 0


def test_what_cannot_be_read_is_used_as_it_was_read_last_and_tried_again_after_a_back_off(copies, server):
    get(copies)
    tries, server.read = [], copies._read

    def refuse(*_):
        tries.append(server.now)
        raise ClusterError("GET key: forbidden", status=403)

    copies._read = refuse
    for _ in range(3):
        server.now += UNUSED_SECONDS
        copies.begin_pass(KEY, "as it was")
        assert get(copies) == get(copies) == secret()
        assert copies.problem(KEY) == "GET key: forbidden"
        assert copies.due(KEY) > timedelta()
        copies.record_write("Secret", secret("other"))
    assert len(tries) == 3
    copies._read = server.read
    server.now += UNUSED_SECONDS
    copies.begin_pass(KEY, "as it was")
    get(copies)
    assert (copies.problem(KEY), copies.due(KEY)) == ("", timedelta.max)


def test_reads_that_get_no_answer_end_before_the_pass_is_stuck(server):
    def hang(*_):
        server.now += REQUEST_SECONDS
        raise ClusterError("timed out")

    copies = GetCache(hang, lambda: server.now)
    for _ in range(3):
        began = server.now
        copies.begin_pass(KEY, "as it was")
        for number in range(100):
            with pytest.raises(UnreadError):
                copies.get(KEY, "Secret", f"key-{number}", AGE)
        assert server.now - began <= get_cache.SLOWEST * REQUEST_SECONDS
        server.now += 1


def test_while_the_whole_api_server_is_away_nothing_is_used(server):
    def hang(*_):
        raise ClusterError("timed out")

    copies = GetCache(hang, lambda: server.now, lambda _: True)
    copies.begin_pass(KEY, "as it was")
    with pytest.raises(ClusterError, match="timed out") as raised:
        get(copies)
    assert not isinstance(raised.value, UnreadError)


def test_groups_of_a_namespace_share_a_copy(copies, server):
    get(copies)
    other = Key("chat", "other")
    copies.begin_pass(other, "as it was")
    assert copies.get(other, "Secret", "key", AGE) == secret()
    assert server.reads == 1


def test_a_group_that_went_and_came_again_is_another(copies, server):
    get(copies)
    copies.forget(KEY)
    server.now += 1
    copies.begin_pass(KEY, "as it was")
    get(copies)
    assert server.reads == 2


def test_copies_that_nobody_reads_go(copies, server):
    get(copies)
    server.now += UNUSED_SECONDS + 1
    copies.record_write("Secret", secret("other"))
    assert list(copies._copies) == [("Secret", "chat", "other")]


def test_the_size_of_all_copies_is_bounded_and_those_used_least_recently_go(monkeypatch):
    reads = []

    def read(kind, namespace, name):
        reads.append(name)
        return {"metadata": {"namespace": namespace, "name": name}, "data": {"system": "x" * 10}}

    one = len(json.dumps(read("", "chat", "a"), separators=(",", ":")))
    monkeypatch.setattr(get_cache, "MAX_BYTES", 2 * one + 1)
    reads.clear()
    copies = GetCache(read)
    copies.begin_pass(KEY, "as it was")
    for name in ("a", "b", "a", "c", "a", "b"):
        copies.get(KEY, "ConfigMap", name, 60)
    assert reads == ["a", "b", "c", "b"]
    assert copies._size == 2 * one


@pytest.mark.heavy
@pytest.mark.parametrize(
    "data",
    [
        {"tools": [[]] * 100_000},  # 24 times the memory of its JSON
        {"system": "x" * 299_000 + "\N{GRINNING FACE}"},  # four times
    ],
    ids=["empty lists", "one wide character"],
)
def test_a_copy_takes_the_memory_that_is_counted_whatever_it_holds(data):
    copies = GetCache(lambda *_: None)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    copies.record_write("Secret", json.loads(json.dumps({"metadata": {"namespace": "a", "name": "b"}, "data": data})))
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 1.1 * copies._size
