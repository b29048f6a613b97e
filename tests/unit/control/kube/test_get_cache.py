import pytest

from promptgroup_operator.kube import get_cache
from promptgroup_operator.kube.get_cache import KEPT_SECONDS, GetCache
from promptgroup_operator.world.snapshot import Key

KEY = Key("chat", "support")
AGE = 600.0


def group(generation=1, labels=None, **status):
    metadata = {"uid": "u", "generation": generation, "labels": labels or {}, "resourceVersion": str(len(status))}
    return {"metadata": metadata, "status": status}


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
    copies.begin_pass(KEY, group())
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


@pytest.mark.parametrize("changed", [group(generation=2), group(labels={"poke": "1"})])
def test_what_users_change_of_the_group_has_everything_read_anew(copies, server, changed):
    get(copies)
    server.now += 1
    copies.begin_pass(KEY, changed)
    get(copies)
    assert server.reads == 2


def test_a_status_is_no_change(copies, server):
    get(copies)
    server.now += 1
    copies.begin_pass(KEY, group(warm="2/2"))
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


def test_groups_of_a_namespace_share_a_copy(copies, server):
    get(copies)
    other = Key("chat", "other")
    copies.begin_pass(other, group())
    assert copies.get(other, "Secret", "key", AGE) == secret()
    assert server.reads == 1


def test_a_group_that_went_and_came_again_is_another(copies, server):
    get(copies)
    copies.forget_group(KEY)
    server.now += 1
    copies.begin_pass(KEY, group())
    get(copies)
    assert server.reads == 2


def test_copies_that_nobody_reads_go(copies, server):
    get(copies)
    server.now += KEPT_SECONDS + 1
    copies.record_write("Secret", secret("other"))
    assert list(copies._copies) == [("Secret", "chat", "other")]


def test_the_size_of_all_copies_is_bounded_and_those_used_least_recently_go(monkeypatch):
    monkeypatch.setattr(get_cache, "MAX_CHARACTERS", 25)
    reads = []

    def read(kind, namespace, name):
        reads.append(name)
        return {"metadata": {"namespace": namespace, "name": name}, "data": {"system": "x" * 10}}

    copies = GetCache(read)
    copies.begin_pass(KEY, group())
    for name in ("a", "b", "a", "c", "a", "b"):
        copies.get(KEY, "ConfigMap", name, 60)
    assert reads == ["a", "b", "c", "b"]
    assert copies._size == 20
