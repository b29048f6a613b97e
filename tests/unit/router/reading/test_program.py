import json
import socket
import threading

import orjson
import pytest

from promptgroup_router.base.logs import Plain
from promptgroup_router.reading import program
from promptgroup_router.reading.letters import Letter, LetterReader, head
from promptgroup_router.reading.program import BodyProgram

BODY = orjson.dumps({"model": "support", "messages": [{"role": "user", "content": "Hi"}]})
READ = {"path": "/v1/chat/completions", "declared": 0}


def answered(asked: BodyProgram, letter: Letter) -> Letter:
    """The letter that answers a letter."""
    said, content = asked.answer(letter)
    found = LetterReader().feed(said + content)
    assert found is not None
    return found


def test_a_body_is_read_and_then_written_with_its_prompt():
    asked = BodyProgram()
    document, content = answered(asked, Letter(READ, bytearray(BODY)))
    assert (document["model"], content) == ("support", b"")
    prompt = {"texts": ["Be kind.", "", ""], "model": "llama", "appends": False}
    order = {
        "prompt": prompt,
        "allowed": [],
        "stripped": [],
        "changes": [],
        "ordered": False,
        "model": "llama",
    }
    document, content = answered(asked, Letter(order, bytearray()))
    assert document == {}
    written = json.loads(content)
    assert (written["model"], [each["content"] for each in written["messages"]]) == ("llama", ["Be kind.", "Hi"])


@pytest.mark.parametrize(
    ("body", "code"), [(b"{", "invalid_json"), (b"[" * 70_000 + b"]" * 70_000, "too_complex"), (b"{}", "invalid_value")]
)
def test_a_refusal_is_told_as_the_router_says_it(body, code):
    document, _ = answered(BodyProgram(), Letter(READ, bytearray(body)))
    assert (document["refused"]["status"], document["refused"]["code"]) == (400, code)


@pytest.mark.parametrize("depth", range(245, 258))
def test_a_body_is_read_or_refused_however_deep_it_is(depth):
    deep = b'{"a":' * depth + b"1" + b"}" * depth
    body = b'{"model":"support","messages":[{"role":"user","content":"Hi","more":%b}]}' % deep
    document, _ = answered(BodyProgram(), Letter(READ, bytearray(body)))
    assert document.get("refused", {"code": "invalid_json"})["code"] == "invalid_json"


def test_a_fault_of_the_program_is_told_and_ends_no_other_request(monkeypatch, caplog):
    monkeypatch.setattr(program.structure, "check", lambda *_: {}["my secret prompt"])
    asked = BodyProgram()
    document, _ = answered(asked, Letter(READ, bytearray(BODY)))
    assert (document["refused"]["status"], document["refused"]["code"]) == (500, "internal_error")
    (told,) = caplog.records
    assert told.fields["error"] == "KeyError"
    assert "secret" not in Plain().format(told)
    monkeypatch.undo()
    assert answered(asked, Letter(READ, bytearray(BODY))).document["model"] == "support"


def test_it_serves_until_the_router_is_gone(monkeypatch):
    monkeypatch.setattr(program.signal, "signal", lambda *_: None)
    monkeypatch.setattr(program.os, "nice", lambda _: None)
    ours, theirs = socket.socketpair()
    served = threading.Thread(target=program.main, args=(theirs.detach(),))
    served.start()
    ours.settimeout(10)
    for _ in range(2):
        ours.sendall(head(READ, len(BODY)) + BODY)
        reader, letter = LetterReader(), None
        while letter is None:
            letter = reader.feed(ours.recv(100))
        assert letter.document["turn"] == 1
    ours.close()
    served.join(10)
    assert not served.is_alive()
