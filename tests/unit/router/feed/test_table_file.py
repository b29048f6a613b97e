import json
import stat

import orjson
import pytest

from promptgroup_contract.encoding import encode_table
from promptgroup_contract.table import Prompt, RoutingTable, TableError
from promptgroup_router.base.steps import at_once
from promptgroup_router.feed import table_file
from support.tables import group, revision, table


def test_a_table_comes_back_as_it_was_written(tmp_path):
    path, written = (
        tmp_path / "table.json",
        table(group("a", revision(tools='[{"a":1}]')), group("b", revision("b", known=False))),
    )
    table_file.write(path, written)
    assert table_file.read(path) == written
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["table.json"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "table.json"
    path.mkdir()
    with pytest.raises(OSError):
        table_file.write(path, table())
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("text", "words"), [("{", "is not JSON"), ("[]", "expected an object"), ('{"format": 3}', "format")]
)
def test_what_is_no_table_is_refused(tmp_path, text, words):
    path = tmp_path / "table.json"
    path.write_text(text)
    with pytest.raises(TableError, match=words):
        table_file.read(path)


def test_a_prompt_of_the_wrong_kind_is_refused_without_its_text(tmp_path):
    path, encoded = tmp_path / "table.json", encode_table(table())
    encoded["groups"][0]["revisions"][0]["prompt"]["system"] = ["a secret"]
    path.write_text(json.dumps(encoded))
    with pytest.raises(TableError, match="prompt: system is a list, expected a string") as caught:
        table_file.read(path)
    assert "secret" not in str(caught.value)


def test_a_prompt_that_is_not_the_fingerprints_is_refused(tmp_path):
    path = tmp_path / "table.json"
    path.write_text(json.dumps(encode_table(table(group("a", revision(prompt=Prompt("another text")))))))
    with pytest.raises(TableError, match="chat/a: the prompt hashes to") as caught:
        table_file.read(path)
    assert "another text" not in str(caught.value)


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(table_file, "MAX_BYTES", 1 << 20)
    path = tmp_path / "table.json"
    path.write_bytes(b" " * (1 << 20) + b"{")
    with pytest.raises(TableError, match="larger than 1 MiB"):
        table_file.read(path)


def test_a_large_file_is_cut_between_groups_and_is_the_same_table(monkeypatch):
    served = table(*(group(f"g{number}", revision(f'A "prompt" [{number}], {{}}. ')) for number in range(20)))
    content = orjson.dumps(encode_table(served), option=orjson.OPT_INDENT_2)
    monkeypatch.setattr(table_file, "SMALL", 0)
    known = {}
    first = at_once(table_file.parse_steps(content, "file", known))
    again = at_once(table_file.parse_steps(content, "file", known))
    assert first == again == served
    assert all(one is other for one, other in zip(first.groups, again.groups, strict=True))
    for bad in (content[:-3], content.replace(b'"g3"', b'"g4"'), content.replace(b'"groups": [', b'"groups": [,')):
        with pytest.raises(TableError):
            at_once(table_file.parse_steps(bad, "file"))
    assert table_file.parse(b'{"format": 1, "groups": [ ]}', "file") == RoutingTable()
