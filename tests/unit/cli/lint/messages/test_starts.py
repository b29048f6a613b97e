"""First user messages that change from turn to turn."""

import orjson

from promptgroup_cli.lint.messages import starts
from promptgroup_cli.lint.subject import sent_prompt
from promptgroup_router.apis.responses import parse_response
from support.lints import STATIC, chat, found

QUESTION = "Where is my order?"
ANSWER = "It left our warehouse this morning."


def at(second):
    return f"[18:11:{second:02}] {QUESTION}"


def turns(first, second, **fields):
    return chat(STATIC, first, **fields), chat(STATIC, second, ANSWER, "Thanks", **fields)


def test_a_time_that_is_written_anew_on_each_turn_is_an_error():
    again = chat(STATIC, at(3), ANSWER, "Thanks", "Welcome", "Bye")
    assert found(*turns(at(1), at(2)), again) == [("session-start", "error", "messages[1]", 1)]


def test_a_time_that_later_turns_repeat_is_harmless():
    again = chat(STATIC, at(1), ANSWER, "Thanks", "Welcome", "Bye")
    assert found(*turns(at(1), at(1)), again) == [("session-start", "note", "messages[1]", 1)]


def test_two_questions_with_one_answer_are_two_conversations():
    again = chat(STATIC, at(1).replace("order", "parcel"), ANSWER, "Thanks")
    assert [severity for _, severity, *_ in found(*turns(at(1), at(1)), again)] == ["note"]


def test_a_named_session_does_not_need_its_start():
    assert found(*turns(at(1), at(2), session_id="s")) == []


def test_a_question_without_a_time_is_clean():
    assert found(*turns(QUESTION, QUESTION)) == []


def test_ever_new_conversations_take_no_more_memory(monkeypatch):
    monkeypatch.setattr(starts, "TRACKED", 8)
    seen = starts.Starts()
    for number in range(50):
        seen.see(chat(STATIC, at(1), f"{ANSWER} {number}", "Thanks"))
    assert len(seen._latest) == 8


def test_starts_of_responses():
    def turn(line, *items, **fields):
        body = orjson.dumps({"model": "m", "instructions": STATIC, "input": items[0] if line == 1 else items} | fields)
        return sent_prompt("log", line, parse_response(body))

    def asked(second):
        return {"role": "user", "content": at(second)}

    call = {"type": "function_call", "name": "look", "arguments": "{}"}
    later = [call, asked(2), {"role": "assistant", "content": ANSWER}, {"role": "user", "content": "Thanks"}]
    assert found(turn(1, at(1))) == [("session-start", "note", "input", 1)]
    again = [later[0], asked(3), *later[2:]]
    assert found(turn(2, *later), turn(3, *again)) == [("session-start", "error", "input[1]", 1)]
    assert found(turn(1, at(1), previous_response_id="resp_1")) == []
