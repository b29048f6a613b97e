import io

import pytest

from promptgroup_cli.base.errors import InputError
from promptgroup_cli.reach.files import read_bytes, read_text, shown


def test_a_file_and_standard_input(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"caf\xc3\xa9")
    assert read_text(str(tmp_path / "file"), 5) == "café"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"text")))
    assert read_bytes("-", 4) == b"text"
    assert shown("-") == "standard input"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none", "none: there is no such file in "),
        ("", "it is a folder: name a file in it"),
        ("prompts.txt", "there is no such file in .*, did you mean prompt.txt?"),
        ("none/prompt.txt", "there is no folder .*/none"),
        ("long", "long: longer than 0 MiB"),
        ("latin", "latin: not text in UTF-8, at byte 3"),
        ("a\0b", "null byte"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, name, words):
    (tmp_path / "long").write_bytes(b"x" * 11)
    (tmp_path / "prompt.txt").touch()
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    with pytest.raises(InputError, match=words):
        read_text(f"{tmp_path}/{name}", 10)


def test_a_label_stands_for_the_name(tmp_path):
    with pytest.raises(InputError, match=r"^--config x: there is no such file"):
        read_bytes(str(tmp_path / "none"), 1, "--config x")
