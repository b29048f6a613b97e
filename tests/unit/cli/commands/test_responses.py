import json

import pytest

from promptgroup_cli.__main__ import build_parser
from promptgroup_cli.commands import responses


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


@pytest.fixture
def purged(monkeypatch):
    """Two routers; what each was asked, by its path."""
    asked = []

    class Cluster:
        namespace = "chat"

        def __init__(self, _namespace):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def routers(self, _namespace):
            def ask(path, body):
                asked.append((path, json.loads(body), self.admin_token))
                return b'{"purged": 3}'

            return {"r1": ask, "r2": ask}

    monkeypatch.setattr(responses, "ClusterConnection", Cluster)
    return asked


@pytest.mark.parametrize(
    ("words", "body"),
    [
        (("--all",), {"all": True}),
        (("--key", "00"), {"key": "00"}),
        (("--group", "support"), {"group": "chat/support"}),
        (("--group", "shop/faq", "--revision", "0123abcd"), {"group": "shop/faq", "revision": "0123abcd"}),
    ],
)
def test_every_router_is_asked(command, purged, words, body):
    code, out, _ = command("responses", "purge", *words)
    assert (code, out) == (0, "r1: 3 purged\nr2: 3 purged\n")
    assert purged == [("/responses/purge", body, "")] * 2


def test_the_admin_token_of_a_file_is_sent(command, purged, tmp_path):
    file = tmp_path / "token"
    file.write_text("own\n")
    assert command("responses", "purge", "--all", "--admin-token-file", str(file))[0] == 0
    assert {token for _, _, token in purged} == {"own"}
    file.write_bytes(b"a\r\nx-evil: b")
    code, _, err = command("responses", "purge", "--all", "--admin-token-file", str(file))
    assert (code, len(purged)) == (2, 2)
    assert "admin token has characters" in err


def test_a_revision_without_a_group_is_refused(command, purged):
    code, _, err = command("responses", "purge", "--all", "--revision", "0123abcd")
    assert (code, purged) == (2, [])
    assert "--group" in err


def test_a_router_that_does_not_answer_is_named(command):
    code, _, err = command("responses", "purge", "--all", "--router", "http://127.0.0.1:1")
    assert code == 3
    assert "1 of 1 routers may keep the answers" in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("purge",), "--group, --key or --all"),
        (("purge", "pairs.jsonl", "--all"), "takes no file"),
    ],
)
def test_what_is_missing_is_said_with_the_way_out(command, words, says):
    code, out, err = command("responses", *words)
    assert (code, out) == (2, "")
    assert says in err
