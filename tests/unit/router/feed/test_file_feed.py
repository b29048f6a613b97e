import asyncio
import errno
import json
import os

from promptgroup_contract.encoding import encode_table
from promptgroup_router.decision.composition import router_state
from promptgroup_router.feed import table_file
from promptgroup_router.feed.file_feed import FileFeed
from promptgroup_router.feed.publish import Publisher
from support.fakeengine import until
from support.tables import group, table


class Case:
    def __init__(self, path) -> None:
        self.path, self.state, self.now = path, router_state(), 0.0
        self.feed = FileFeed(path, Publisher(self.state, lambda: self.now, None))

    @property
    def version(self) -> str:
        return self.state.index.table.version

    def errors(self) -> float:
        return self.state.metrics.table_errors.values.get(("file",), 0)


def test_the_file_is_read_again_when_it_changes(tmp_path):
    case = Case(tmp_path / "table.json")
    table_file.write(case.path, table(version="v1"))
    case.feed.look()
    assert case.version == "v1"
    case.path.write_text(json.dumps(encode_table(table(group("other"), version="v2"))))
    case.feed.look()
    assert case.version == "v2"


def test_an_unchanged_file_is_not_read_but_confirmed(tmp_path, monkeypatch):
    case = Case(tmp_path / "table.json")
    table_file.write(case.path, table())
    case.feed.look()
    monkeypatch.setattr(table_file, "content_of", lambda _: 1 / 0)
    case.now = 9.0
    case.feed.look()
    assert case.state.confirmed == 9.0


def test_a_bad_file_keeps_the_last_good_table_and_is_told_once(tmp_path, caplog):
    case = Case(tmp_path / "table.json")
    table_file.write(case.path, table())
    case.feed.look()
    for _ in range(2):
        case.path.write_text('{"format": 9}')
        case.feed.look()
    assert case.version == "v1"
    assert (case.errors(), caplog.text.count("table cannot be read")) == (1, 1)
    assert "format is 9" in str(caplog.records[-1].fields["problem"])
    case.path.unlink()
    case.feed.look()
    assert case.errors() == 2
    table_file.write(case.path, table(version="v3"))
    case.feed.look()
    assert case.version == "v3"


def test_a_bad_file_does_not_confirm_the_table_in_use(tmp_path):
    case = Case(tmp_path / "table.json")
    table_file.write(case.path, table())
    case.feed.look()
    case.path.write_text("no table")
    for case.now in (5.0, 6.0):
        case.feed.look()
    assert case.state.confirmed == 0.0
    table_file.write(case.path, table())
    case.now = 7.0
    case.feed.look()
    assert case.state.confirmed == 7.0


def test_a_file_that_could_not_be_read_for_a_moment_is_read_again(tmp_path, monkeypatch):
    case = Case(tmp_path / "table.json")
    table_file.write(case.path, table(version="v1"))
    case.feed.look()
    table_file.write(case.path, table(version="v2"))
    case.now = 5.0

    def fail(_path):
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as full:
        full.setattr(table_file, "content_of", fail)
        case.feed.look()
        case.feed.look()
    assert (case.version, case.state.confirmed, case.errors()) == ("v1", 0.0, 1)
    case.feed.look()
    assert (case.version, case.state.confirmed) == ("v2", 5.0)


def test_the_feed_follows_and_sighup_makes_it_look_at_once(tmp_path):
    async def check():
        case = Case(tmp_path / "table.json")
        table_file.write(case.path, table(version="v1"))
        task = asyncio.ensure_future(case.feed.run())
        await until(lambda: case.version == "v1", "the table")
        stamp = case.path.stat()
        # same size, same inode, same time: only asking tells
        case.path.write_text(case.path.read_text().replace('"v1"', '"v2"'))
        os.utime(case.path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        case.feed.reload()
        await until(lambda: case.version == "v2", "the table again", seconds=0.9)
        task.cancel()

    asyncio.run(check())
