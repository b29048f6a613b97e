import asyncio
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from promptgroup_contract.table import Engine, ModelAlias, RoutingTable, SlotState
from promptgroup_router.base import steps
from promptgroup_router.decision.composition import router_state
from promptgroup_router.feed import publish, table_file
from promptgroup_router.feed.publish import Publisher
from support.tables import group, revision, slot, table


class Case:
    def __init__(self, copy=None) -> None:
        self.state, self.now = router_state(), 0.0
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
    monkeypatch.setattr(steps, "SLICE_SECONDS", 0.0)
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


def test_everything_is_searched_for_garbage_once_in_a_while(monkeypatch):
    found, case = [], Case()
    monkeypatch.setattr(publish.gc, "collect", lambda: found.append(case.now))
    for number, now in enumerate((1.0, 1800.0, publish.COLLECT_SECONDS, publish.COLLECT_SECONDS + 1)):
        case.now = now
        asyncio.run(case.publisher.publish_in_slices(table(group("a"), version=f"v{number}"), "kubernetes"))
    assert found == [publish.COLLECT_SECONDS]


def test_a_fault_at_one_group_is_not_one_of_the_others_in_slices_too():
    case = Case()
    asyncio.run(case.publisher.publish_in_slices(table(group("a"), BAD), "kubernetes"))
    assert [each.label for each in case.state.index.groups] == ["chat/a"]
    assert case.state.metrics.table_errors.values == {("kubernetes",): 1}


def test_a_group_that_is_equal_stays_what_it_was():
    case = Case()
    case.publisher.publish(table(group("a"), group("b", revision("B"))), "file")
    before = case.state.index
    asyncio.run(case.publisher.publish_in_slices(table(group("a"), group("b", revision("C")), version="v2"), "file"))
    assert case.state.index.names["a"] is before.names["a"]
    assert case.state.index.names["b"] is not before.names["b"]


def most_of_a_step(steps):
    """Return the most instructions of the interpreter between two turns of others."""
    counted = most = 0

    def count(frame, event, _):
        nonlocal counted
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        counted += event == "opcode"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        for _ in steps:
            most, counted = max(most, counted), 0
    finally:
        sys.settrace(before)
    return max(most, counted)


def served_by(count):
    return [
        group(f"g{number}", revision(f"Prompt {number}. ", 2, engine=Engine("one", kv_tokens=1000)))
        for number in range(count)
    ]


CHANGES = {
    "the same again": lambda listed: [replace(each) for each in listed],
    "a slot leaves": lambda listed: [
        group("g0", revision("Prompt 0. ", (slot(0, SlotState.ABSENT), slot(1)), engine=Engine("one"))), *listed[1:]
    ],
    "a group comes": lambda listed: [*listed, group("more", revision("More."))],
    "a group leaves": lambda listed: listed[1:],
    "all leave": lambda _: [group("other", revision("Other."))],
}  # fmt: skip
STEP = 15_000
"""Instructions of a step whatever the table has, such as the sorting of some values: half a millisecond."""
OF_A_GROUP = 40
"""Instructions that a step may have for each group: of ten thousand that is some milliseconds."""


@pytest.mark.interpreted
@pytest.mark.heavy
@pytest.mark.parametrize("change", CHANGES)
def test_no_step_of_a_change_does_more_than_a_little_for_each_group(change):
    case, listed = Case(), served_by(300)
    first = most_of_a_step(case.publisher.install_steps(RoutingTable(tuple(listed), "v1"), "kubernetes"))
    then = most_of_a_step(
        case.publisher.install_steps(RoutingTable(tuple(CHANGES[change](listed)), "v2"), "kubernetes")
    )
    assert max(first, then) < STEP + OF_A_GROUP * len(listed)
    told = most_of_a_step(case.state.exposition_steps(1.0, 0))
    assert told < STEP + OF_A_GROUP * len(listed)
