from pathlib import Path

import pytest

from promptgroup_router.base.core_settings import ApiServerAddress
from promptgroup_router.base.settings import parse

IN_A_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}


def test_a_table_file_needs_nothing_else():
    found = parse(["--table", "t.json"], {})
    assert found.source == Path("t.json")
    assert (found.port, found.admin_port, found.drain_delay, found.reuse_port) == (8080, 9090, 0.0, False)


def test_flags_come_before_the_environment():
    environment = {
        "PROMPTGROUP_ROUTER_TABLE": "e.json",
        "PROMPTGROUP_ROUTER_PORT": "1",
        "PROMPTGROUP_ROUTER_REUSE_PORT": "1",
    }
    found = parse(["--port", "2"], environment)
    assert (found.source, found.port, found.reuse_port) == (Path("e.json"), 2, True)


def test_in_a_pod_the_namespace_is_the_pods_own(tmp_path):
    (tmp_path / "namespace").write_text("chat\n")
    found = parse(["--service-account-dir", str(tmp_path)], IN_A_POD)
    assert found.source == ApiServerAddress("10.0.0.1", 6443, tmp_path, ("chat",))
    assert found.drain_delay == 5.0


def test_namespaces_can_be_named(tmp_path):
    found = parse(["--namespaces", "a, b,a,", "--drain-delay", "0"], IN_A_POD)
    assert found.source.namespaces == ("a", "b")
    assert found.drain_delay == 0.0


PEERS = ["--table", "t", "--peer-key-file", "k", "--peers"]


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        ([], {}, "--table FILE"),
        (["--table", "t", "--namespaces", "a"], {}, "leave one out"),
        (["--service-account-dir", "/nowhere"], IN_A_POD, "/nowhere/namespace"),
        (["--namespaces", "a"], {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "tcp://"}, "PORT"),
        (["--table", "t", "--port", "70000"], {}, "--port is 70000"),
        (["--table", "t", "--port", "http"], {}, "--port"),
        (["--table", "t", "--max-body-bytes", "0"], {}, "--max-body-bytes is 0"),
        (["--table", "t", "--body-memory-bytes", "0"], {}, "--body-memory-bytes is 0"),
        (["--table", "t", "--max-connections", "-1"], {}, "--max-connections is -1"),
        (["--table", "t", "--request-timeout", "-1"], {}, "--request-timeout"),
        (["--table", "t", "--connect-timeout", "nan"], {}, "--connect-timeout"),
        (["--table", "t", "--drain-timeout", "-1"], {}, "--drain-timeout"),
        (["--table", "t", "--log-level", "loud"], {}, "--log-level"),
        (["--table", "t", "--allowed-origins", "app.example.com"], {}, "--allowed-origins has 'app.example.com'"),
        (["--table", "t", "--allowed-origins", "https://a/b"], {}, "--allowed-origins has 'https://a/b'"),
        (["--table", "t", "--peers", "a"], {}, "--peer-key-file: give the file"),
        (["--table", "t", "--peer-key-file", "k"], {}, "--peers: give the names"),
        ([*PEERS, "a:http"], {}, "'a:http', whose port is 'http'"),
        ([*PEERS, "a:0"], {}, "'a:0', whose port is '0'"),
        ([*PEERS, "a:65536"], {}, "expected 1 to 65535"),
        ([*PEERS, "a:"], {}, "'a:', whose port is ''"),
        ([*PEERS, ":9094"], {}, "':9094', expected HOST"),
        ([*PEERS, "udp://a"], {}, "'udp://a', whose port is '//a'"),
        ([*PEERS, "a b"], {}, "'a b', expected HOST"),
        ([*PEERS, "a", "--peer-port", "0"], {}, "--peer-port is 0"),
        ([*PEERS, "a", "--peer-port", "65530"], {}, "--peer-port is 65530, expected 1 to 65528 with --peer-ports 8"),
        ([*PEERS, "a", "--peer-ports", "0"], {}, "--peer-ports is 0, expected 1 to 64"),
        ([*PEERS, "a", "--peer-ports", "65"], {}, "--peer-ports is 65, expected 1 to 64"),
        ([*PEERS, "a", "--peer-tick", "0.001"], {}, "--peer-tick is 0.001, expected 0.01 to 1"),
        ([*PEERS, "a", "--peer-tick", "nan"], {}, "--peer-tick is nan"),
        (["--table", "t"], {"PROMPTGROUP_ROUTER_ADMIN_PORT": "x"}, "--admin-port"),
        (["--table", "t"], {"PROMPTGROUP_ROUTER_LOG_FORMAT": "xml"}, "log"),
    ],
)
def test_what_cannot_be_used_is_named(arguments, environment, words, capsys):
    with pytest.raises(SystemExit) as caught:
        parse(arguments, environment)
    assert caught.value.code == 2
    assert words in capsys.readouterr().err


def test_help_names_every_flag(capsys):
    with pytest.raises(SystemExit) as caught:
        parse(["--help"], {})
    assert caught.value.code == 0
    text = capsys.readouterr().out
    for flag in ("table", "namespaces", "cache-file", "reuse-port", "max-body-bytes", "drain-delay", "log-format"):
        assert f"--{flag}" in text
    assert "PROMPTGROUP_ROUTER_" in text


def test_origins_are_listed_and_none_is_the_default():
    assert parse(["--table", "t"], {}).allowed_origins == ()
    given = parse(["--table", "t", "--allowed-origins", "https://a.example.com, http://localhost:3000,"], {})
    assert given.allowed_origins == ("https://a.example.com", "http://localhost:3000")
    assert parse(["--table", "t"], {"PROMPTGROUP_ROUTER_ALLOWED_ORIGINS": "*"}).allowed_origins == ("*",)
