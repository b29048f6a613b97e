import json

import pytest

from promptgroup_cli.__main__ import build_parser
from promptgroup_cli.calibration import endpoint
from promptgroup_router.semantic.embedding import unit


def parsed(*words):
    return build_parser("promptgroup", ["responses"]).parse_args(["responses", *words])


def test_a_calibration_says_what_it_reads_and_wants():
    found = parsed("calibrate", "pairs.jsonl", "--precision", "0.95", "--minilm")
    assert (found.action, found.pairs, found.precision, found.minilm) == ("calibrate", "pairs.jsonl", 0.95, True)
    assert parsed("calibrate", "-").precision == 0.99


@pytest.mark.parametrize(
    ("words", "says"),
    [
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
