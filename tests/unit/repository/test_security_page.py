"""Each promise of docs/security.md names the test that holds it, and that test exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/security.md").read_text()
ROWS = re.findall(r"^\| (?P<promise>[^|]+) \| (?P<tests>`[^|]+::[^|]+`) \|$", PAGE, re.MULTILINE)


def test_every_promise_has_tests_that_exist():
    assert len(ROWS) > 10
    for promise, tests in ROWS:
        for path, name in re.findall(r"`([\w/.-]+)::(\w+)`", tests):
            assert f"def {name}(" in (ROOT / path).read_text(), f"{promise}: {path}::{name}"


def test_every_reader_has_tests_that_exist():
    table = PAGE.partition("| what is read |")[2].partition("\n\n")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    assert len(rows) > 15
    for row in rows:
        found = re.findall(r"`([\w/.-]+)::(\w+)`", row)
        assert found, row
        for path, name in found:
            assert f"def {name}(" in (ROOT / path).read_text(), f"{path}::{name}"


def test_every_row_of_the_table_is_read():
    table = PAGE.partition("| promise | test |")[2].partition("\n\n")[0]
    assert len(ROWS) == len([line for line in table.splitlines() if line.startswith("| ")])
