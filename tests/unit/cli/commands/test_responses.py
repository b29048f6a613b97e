import json

import pytest

from promptgroup_cli.__main__ import build_parser
from promptgroup_cli.commands import responses
from promptgroup_cli.embedding import endpoint
from promptgroup_router.semantic.embedding import unit


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
        (("calibrate",), "calibrate pairs.jsonl"),
        *(
            (("calibrate", "pairs.jsonl", "--precision", each), f"--precision is {each}, expected a share from 0.5 to")
            for each in ("1", "0", "nan", "1e-300", "0.49", "0.99991", "0.9999999999")
        ),
        (("calibrate", "pairs.jsonl"), "--endpoint"),
        (("calibrate", "pairs.jsonl", "--endpoint", "http://x/", "--minilm"), "one of"),
        (("calibrate", "pairs.jsonl", "--endpoint", "http://x/"), "--embedding-model"),
    ],
)
def test_what_is_missing_is_said_with_the_way_out(command, tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.jsonl").write_text('{"a": "x", "b": "y", "same": true}\n')
    code, out, err = command("responses", *words)
    assert (code, out) == (2, "")
    assert says in err


def test_a_threshold_is_chosen_where_one_is_proven(command, tmp_path, monkeypatch):
    def embed(texts):
        return [unit([1, 0.001 * len(text)]) if "refund" in text else unit([0, 1]) for text in texts]

    monkeypatch.setattr(endpoint, "from_endpoint", lambda _url, _model, _key: embed)
    pairs = [
        {"a": f"{'x' * (n % 40)} refund {chr(97 + n // 40) * 3}", "b": "my refund", "same": True} for n in range(1000)
    ]
    pairs += [{"a": each["a"], "b": "opening", "same": False} for each in pairs]
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in pairs))
    words = ("--endpoint", "http://x/", "--embedding-model", "m")
    code, out, _ = command("responses", "calibrate", str(path), "--precision", "0.98", *words)
    assert code == 0
    assert "\nthreshold: 0.5\n" in out
    code, out, _ = command("responses", "calibrate", str(path), "--precision", "0.9999", *words)
    assert code == 1
    assert "No threshold is proven" in out


@pytest.mark.parametrize("precision", ["0.5", "0.9999"])
def test_the_bounds_of_a_precision_can_be_wanted(command, tmp_path, monkeypatch, precision):
    monkeypatch.setattr(endpoint, "from_endpoint", lambda *_: lambda texts: [unit([1, 0])] * len(texts))
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"a": "x", "b": "y", "same": true}\n{"a": "x", "b": "z", "same": true}\n')
    words = ("--endpoint", "http://x/", "--embedding-model", "m", "--precision", precision)
    assert command("responses", "calibrate", str(path), *words)[0] == 1
