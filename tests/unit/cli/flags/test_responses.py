import pytest

from promptgroup_cli.__main__ import build_parser


def parsed(*words):
    return build_parser("promptgroup", ["responses"]).parse_args(["responses", *words])


def test_a_purge_says_what_to_forget():
    found = parsed("purge", "--group", "support", "--revision", "0123abcd", "-n", "chat")
    assert (found.action, found.group, found.revision, found.namespace) == ("purge", "support", "0123abcd", "chat")
    assert parsed("purge", "--all").all


@pytest.mark.parametrize("words", [("purge", "--all", "--key", "0"), ("forget", "--all")])
def test_a_purge_of_two_things_is_refused(words, capsys):
    with pytest.raises(SystemExit) as ended:
        parsed(*words)
    assert ended.value.code == 2
    assert "--help" in capsys.readouterr().err


def test_a_calibration_says_what_it_reads_and_wants():
    found = parsed("calibrate", "pairs.jsonl", "--precision", "0.95", "--minilm")
    assert (found.action, found.pairs, found.precision, found.minilm) == ("calibrate", "pairs.jsonl", 0.95, True)
    assert parsed("calibrate", "-").precision == 0.99
