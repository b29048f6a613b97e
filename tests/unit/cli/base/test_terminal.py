import sys

import pytest

from promptgroup_cli.base.terminal import plain_streams, send_control


def test_whatever_is_printed_moves_no_cursor_and_turns_no_text(capsys):
    before = sys.stdout, sys.stderr
    with plain_streams():
        sys.stdout.write("a\x1b[2J\u202eb\tc\n")
        sys.stderr.write("\x07\n")
    assert tuple(capsys.readouterr()) == ("a\\u001b[2J\\u202eb\tc\n", "\\u0007\n")
    assert (sys.stdout, sys.stderr) == before


def test_the_streams_are_given_back_when_a_command_fails():
    before = sys.stdout, sys.stderr
    with pytest.raises(ValueError, match="x"), plain_streams():
        raise ValueError("x")
    assert (sys.stdout, sys.stderr) == before


def test_only_the_command_itself_controls_the_screen(capsys):
    with plain_streams():
        sys.stdout.write("\x1b[H")
        send_control("\x1b[2J")
        assert not sys.stdout.isatty()
    assert capsys.readouterr().out == "\\u001b[H\x1b[2J"


def test_no_command_prints_what_a_name_would_do_to_a_terminal(command, tmp_path):
    (tmp_path / "group\x1b[2J.yaml").write_text("kind: PromptGroup\u202e\x07")
    for words in (("lint", "\x1b]0;title\x07"), ("plan", str(tmp_path / "group\x1b[2J.yaml")), ("size", "--x\u202e")):
        _, out, err = command(*words, exits=True)
        assert out + err
        assert not set("\x1b\x07\u202e") & set(out + err), words
