import argparse

import pytest

from promptgroup_cli.flags import probe


def parsed(*words):
    parser = argparse.ArgumentParser(exit_on_error=False)
    probe.add(parser)
    return parser.parse_args(words)


def test_what_is_not_given():
    found = parsed("127.0.0.1:8000", "--model", "tiny")
    assert (found.engine, found.type, found.tokens, found.repeat) == (
        "127.0.0.1:8000",
        "vLLM",
        (512, 1024, 2048, 4096),
        3,
    )
    assert (found.copy_to, found.reset, found.key_file) == (None, False, None)


def test_addresses_are_written_as_urls_too():
    assert parsed("http://[::1]:8000/", "--model", "tiny", "--copy-to", "pod:8000").engine == "[::1]:8000"


@pytest.mark.parametrize(
    "words",
    [("https://e:8000",), ("e",), ("e:0",), ("e:8000/v1",), ("e:8000", "--tokens", "512"),
     ("e:8000", "--tokens", "512,4096"),
     ("e:8000", "--tokens", "5,x"),
     ("e:8000", "--tokens", "512,999999"), ("e:8000", "--repeat", "0"), ("e:8000", "--repeat", "21"),
     ("e:8000", "--reset", "--copy-to", "f:8000")],
)  # fmt: skip
def test_what_cannot_be_measured_is_refused(words):
    with pytest.raises((argparse.ArgumentError, SystemExit)):
        parsed(*words, "--model", "tiny")
