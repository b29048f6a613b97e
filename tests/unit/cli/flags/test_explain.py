import argparse

import pytest

from promptgroup_cli.flags import explain


def parsed(*words):
    parser = argparse.ArgumentParser()
    explain.add(parser)
    return parser.parse_args(words)


def test_a_header_that_is_none_is_not_repeated(capsys):
    with pytest.raises(SystemExit):
        parsed("-H", "secret")
    err = capsys.readouterr().err
    assert "expected 'NAME: VALUE'" in err
    assert "secret" not in err


def test_names_of_headers_are_in_lower_case():
    assert parsed("-H", "X-Session-ID: 7", "-H", "authorization:Bearer a:b").header == [
        ("x-session-id", "7"),
        ("authorization", "Bearer a:b"),
    ]


def test_either_a_router_or_a_table_answers():
    with pytest.raises(SystemExit):
        parsed("--router", "http://r:9090", "--table", "t.json")
