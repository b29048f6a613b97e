import pytest

from promptgroup_picker.settings import parse


def test_a_table_file_needs_nothing_else():
    found = parse(["--table", "t"], {})
    assert (found.port, found.health_port, found.admin_port) == (9002, 9003, 9090)
    assert (found.plaintext, found.endpoints, found.conformance) == (False, 1, "")


def test_flags_come_before_the_environment():
    environment = {"PROMPTGROUP_PICKER_ENDPOINTS": "3", "PROMPTGROUP_PICKER_PLAINTEXT": "1"}
    assert parse(["--table", "t"], environment).endpoints == 3
    assert parse(["--table", "t"], environment).plaintext
    assert parse(["--table", "t", "--endpoints", "2"], environment).endpoints == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--endpoints", "0"], "--endpoints is 0, expected 1 to 8"),
        (["--health-port", "70000"], "--health-port is 70000"),
        (["--tls-cert-file", "c"], "give both, or none"),
        (["--tls-cert-file", "c", "--tls-key-file", "k", "--plaintext"], "leave one out"),
        (["--tls-client-ca", "ca", "--plaintext"], "--plaintext and --tls-client-ca are both given"),
        (["--conformance", "pool"], "--conformance and --table are both given"),
        (["--max-body-bytes", "0"], "--max-body-bytes is 0"),
    ],
)
def test_what_cannot_be_used_is_named(arguments, words, capsys):
    with pytest.raises(SystemExit):
        parse(["--table", "t", *arguments], {})
    assert words in capsys.readouterr().err
