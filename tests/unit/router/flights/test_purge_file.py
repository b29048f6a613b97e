import stat

import pytest

from promptgroup_router.flights.purge_file import PurgeFile
from promptgroup_router.response_cache.purge import MOST_PURGES, Purge, Purges
from support.asks import answer

KEPT = answer(1, born=100.0)


def test_a_purge_outlives_the_process(tmp_path):
    file = PurgeFile(tmp_path / "table.json.purges")
    before = Purges()
    file.restore(before, 100.0)  # nothing is there yet
    before.add(Purge(group=KEPT.group, revision=KEPT.revision), 150.0)
    before.add(Purge(key=answer(2).key), 160.0)
    file.save(before)
    assert stat.S_IMODE((tmp_path / "table.json.purges").stat().st_mode) == 0o600
    file.restore(after := Purges(), 200.0)
    assert after.forbid_kept(KEPT)
    assert after.forbid(answer(2).key, "any/group", "r", 160.0)
    assert not after.forbid(answer(3).key, "any/group", "r", 160.0)


def test_the_most_purges_fit_into_what_is_read(tmp_path):
    file, made = PurgeFile(tmp_path / "purges"), Purges()
    for number in range(MOST_PURGES):
        made.add(Purge(group=f"{'n' * 60}{number:04}/{'g' * 250}", revision="01234567"), float(number))
    file.save(made)
    file.restore(again := Purges(), float(MOST_PURGES))
    assert again == made


@pytest.mark.parametrize("content", [b"", b"{", b"7", b'[{"key": "zz", "group": "", "revision": "", "at": 1}]', b"[1]"])
def test_a_file_that_is_none_is_logged_and_nothing_is_taken_from_it(tmp_path, caplog, content):
    path = tmp_path / "purges"
    path.write_bytes(content)
    PurgeFile(path).restore(purges := Purges(), 1.0)
    assert purges == Purges()
    assert "copy of the purges not read" in caplog.text


def test_a_file_that_cannot_be_written_fails_no_purge(tmp_path, caplog):
    PurgeFile(tmp_path / "missing" / "purges").save(Purges())
    assert "copy of the purges not written" in caplog.text
