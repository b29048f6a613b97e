import argparse

import pytest

from promptgroup_cli.base.server_flags import add_prometheus_files, server_address


@pytest.mark.parametrize("text", ["http://127.0.0.1:9090", "https://user:word@h/prometheus/", "http://[::1]:9090"])
def test_an_address_of_a_server(text):
    assert server_address(text) == text


@pytest.mark.parametrize(
    "text", ["", "127.0.0.1:9090", "ftp://h", "http://", "http://h?a=b", "http://u:word@[::1", "http://u:word@h:99999"]
)
def test_what_is_none_is_not_repeated(text):
    with pytest.raises(argparse.ArgumentTypeError, match="expected http://HOST:PORT") as refused:
        server_address(text)
    assert "word" not in str(refused.value)


@pytest.mark.parametrize("flag", ["--prometheus-token-file", "--prometheus-ca-file"])
@pytest.mark.parametrize(
    "line",
    ["usage --prometheus http://127.0.0.1:1", "size --from-prometheus http://127.0.0.1:1", "dashboard --no-cluster"],
)
def test_a_file_that_is_not_there_is_a_wrong_flag(command, line, flag):
    status, out, err = command(*line.split(), flag, "nope", exits=True)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert f"argument {flag}: 'nope' is no file" in err


def test_a_file_that_is_there_is_taken(tmp_path):
    (tmp_path / "token").write_text("t")
    parser = argparse.ArgumentParser()
    add_prometheus_files(parser)
    found = parser.parse_args(["--prometheus-token-file", str(tmp_path / "token")])
    assert (found.prometheus_token_file, found.prometheus_ca_file) == (tmp_path / "token", None)
