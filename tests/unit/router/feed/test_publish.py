import asyncio
import gc
from dataclasses import replace
from types import SimpleNamespace

import pytest

from promptgroup_contract.table import ModelAlias, RoutingTable, SlotState
from promptgroup_router.feed import publish, table_file
from promptgroup_router.feed.publish import Publisher, in_slices
from promptgroup_router.routing import state as state_module
from promptgroup_router.routing.state import RouterState
from support.tables import group, revision, slot, table


class Case:
    def __init__(self, copy=None) -> None:
        self.state, self.now = RouterState(), 0.0
        self.publisher = Publisher(self.state, lambda: self.now, copy)


def test_a_table_is_served_and_kept(tmp_path):
    case = Case(tmp_path / "copy.json")
    case.publisher.publish(table(), "file")
    assert case.state.index.table == table()
    assert table_file.read(tmp_path / "copy.json") == table()


def test_the_same_table_again_is_not_installed_anew(tmp_path):
    case = Case(tmp_path / "copy.json")
    case.publisher.publish(table(), "file")
    view, stamp = case.state.index, (tmp_path / "copy.json").stat().st_mtime_ns
    case.now = 5.0
    case.publisher.publish(table(), "file")
    assert case.state.index is view
    assert case.state.confirmed == 0.0
    case.publisher.confirm()
    assert case.state.confirmed == 5.0
    assert (tmp_path / "copy.json").stat().st_mtime_ns == stamp


def test_an_empty_first_table_is_a_table():
    case = Case()
    case.publisher.publish(RoutingTable(), "kubernetes")
    assert case.state.loaded


def test_a_restart_serves_the_copy(tmp_path):
    table_file.write(tmp_path / "copy.json", table())
    case = Case(tmp_path / "copy.json")
    assert case.publisher.restore() == table()
    assert case.state.loaded
    assert case.state.index.table == table()


def test_without_a_good_copy_a_restart_waits(tmp_path):
    assert Case().publisher.restore() is None
    assert Case(tmp_path / "none.json").publisher.restore() is None
    (tmp_path / "bad.json").write_text("{")
    case = Case(tmp_path / "bad.json")
    assert case.publisher.restore() is None
    assert not case.state.loaded
    assert case.state.metrics.table_errors.values == {("copy",): 1}


def test_a_copy_that_cannot_be_written_does_not_stop_serving(tmp_path, caplog):
    case = Case(tmp_path / "no" / "such" / "folder" / "copy.json")
    case.publisher.publish(table(), "file")
    assert case.state.index.table == table()
    assert "copy of the table not written" in caplog.text


BAD = group("b", revision(slots=(slot(1 << 64, address="10.0.0.1:8000"),)), namespace="other")
"""A group that decoding refuses, and at which the router would fail."""


def test_a_fault_at_one_group_is_not_one_of_the_others(tmp_path, caplog):
    case = Case(tmp_path / "copy.json")
    good = replace(BAD, revisions=(revision("Good."),))
    case.publisher.publish(table(group("a"), good), "kubernetes")
    for _ in range(2):
        case.publisher.publish(table(group("a"), BAD, group("c"), version="v2"), "kubernetes")
    served = table(group("a"), good, group("c"), version="v2")
    assert case.state.index.table == table_file.read(tmp_path / "copy.json") == served
    assert case.state.metrics.table_errors.values == {("kubernetes",): 1}
    assert caplog.text.count("the router fails at a group") == 1
    case.publisher.publish(table(BAD, version="v3"), "kubernetes")
    assert [each.label for each in case.state.index.groups] == ["other/b"]


def test_a_fault_at_the_whole_table_leaves_the_last_one_in_use(tmp_path, monkeypatch, caplog):
    case = Case(tmp_path / "copy.json")
    case.publisher.publish(table(), "file")
    state = case.state
    failing = SimpleNamespace(index=state.index, metrics=state.metrics, loaded=True, install=lambda *_: 1 / 0)
    monkeypatch.setattr(case.publisher, "_state", failing)
    case.publisher.publish(table(group("a")), "file")
    assert case.state.index.table == table_file.read(tmp_path / "copy.json") == table()
    assert "the router fails at the table" in caplog.text


def test_conflicts_are_logged_once(caplog):
    case = Case()
    for version in ("v1", "v2"):
        case.publisher.publish(table(group("a"), group("b", created="2027"), version=version), "file")
    assert caplog.text.count("two groups declare one prompt") == 1


def test_a_name_that_another_namespace_had_first_is_logged_once(caplog):
    case = Case()
    for version in ("v1", "v2"):
        late = group("x", revision("z"), namespace="late", model="a", created="2027-01-01T00:00:00Z")
        case.publisher.publish(table(group("a"), late, version=version), "file")
    assert caplog.text.count("has a name that an older group of another namespace keeps") == 1
    assert 'name_conflicts{group="late/x"} 1' in case.state.exposition(1.0, 0)


def test_an_alias_that_another_group_keeps_is_logged_once(caplog):
    case = Case()
    for version in ("v1", "v2"):
        groups = group("a", aliases=(ModelAlias("b"),)), group("b", revision("z"))
        case.publisher.publish(table(*groups, version=version), "file")
    assert caplog.text.count("an alias of a model is a name that another group keeps") == 1


def test_a_large_table_is_installed_in_slices(tmp_path, monkeypatch):
    monkeypatch.setattr(publish, "SLICE_SECONDS", 0.0)
    large = table(*(group(f"g{number}", revision(f"Prompt {number}. " * 9)) for number in range(50)))
    turns = 0

    async def others():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def check():
        running = asyncio.ensure_future(others())
        case = Case(tmp_path / "copy.json")
        await case.publisher.publish_in_slices(large, "kubernetes")
        running.cancel()
        assert case.state.index.table == large
        assert table_file.read(tmp_path / "copy.json") == large

    asyncio.run(check())
    assert turns > 100


@pytest.mark.interpreted
def test_many_new_replicas_are_made_in_slices(monkeypatch):
    made, case = [], Case()
    prepare = case.state.balancer.prepare

    def counted(view, now):
        for step in prepare(view, now):
            made.append(step)
            yield step

    monkeypatch.setattr(case.state.balancer, "prepare", counted)
    asyncio.run(case.publisher.publish_in_slices(table(group("a", revision(slots=40))), "kubernetes"))
    assert len(made) == 40
    assert len(case.state.balancer.replicas) == 40


def test_all_that_takes_long_of_a_large_group_is_done_in_slices_before_it_is_served(monkeypatch):
    case = Case()
    slots = tuple(slot(number) for number in range(300))
    asyncio.run(case.publisher.publish_in_slices(table(group("a", revision(slots=slots)), version="v1"), "kubernetes"))

    def never(*_):
        raise AssertionError("it is done at once")

    for name in ("build_index", "remapped_shares"):
        monkeypatch.setattr(state_module, name, never)
    away = (replace(slots[0], state=SlotState.ABSENT), *slots[1:])
    changed = table(group("a", revision(slots=away)), version="v2")
    asyncio.run(case.publisher.publish_in_slices(changed, "kubernetes"))
    assert case.state.index.table == changed
    assert 'keys_moved_ratio{group="chat/a"}' in case.state.exposition(1.0, 0)


def test_everything_is_searched_for_garbage_once_in_a_while(monkeypatch):
    found, case = [], Case()
    monkeypatch.setattr(publish.gc, "collect", lambda: found.append(case.now))
    for number, now in enumerate((1.0, 1800.0, publish.COLLECT_SECONDS, publish.COLLECT_SECONDS + 1)):
        case.now = now
        asyncio.run(case.publisher.publish_in_slices(table(group("a"), version=f"v{number}"), "kubernetes"))
    assert found == [publish.COLLECT_SECONDS]


def test_a_fault_within_a_slice_costs_its_group_alone(monkeypatch):
    def fail(*_):
        raise RuntimeError("a fault of the router")
        yield

    monkeypatch.setattr(state_module, "index_steps", fail)
    case = Case()
    asyncio.run(case.publisher.publish_in_slices(table(), "kubernetes"))
    assert case.state.index.table == table()


def test_others_have_their_turn_between_slices(monkeypatch):
    monkeypatch.setattr(publish, "SLICE_SECONDS", 0.0)
    turns = []

    def steps():
        for _ in range(3):
            yield
        return len(turns)

    async def check():
        for number in range(9):
            asyncio.get_running_loop().call_soon(turns.append, number)
        return await in_slices(steps())

    assert asyncio.run(check()) == 9


class Row:
    """Something that garbage collections visit."""


@pytest.mark.parametrize("lasting", [True, False])
def test_what_lasts_is_visited_by_no_collection(lasting):
    made = []

    def steps():
        for _ in range(3):
            made.append(Row())
            yield

    asyncio.run(in_slices(steps(), lasting=lasting))
    visited = {id(thing) for thing in gc.get_objects()}
    assert [id(row) in visited for row in made] == [not lasting] * 3
