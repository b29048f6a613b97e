import json

import pytest

from promptgroup_cli.base.errors import InputError, ReachError
from promptgroup_cli.reach.explained import explain_question, parse_explanation


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"model": "m", "messages": []}, "/v1/chat/completions"),
        ({"model": "m", "prompt": "x"}, "/v1/completions"),
        ({"model": "m", "system": "x", "messages": []}, "/v1/messages"),
        ({"model": "m", "instructions": "x", "input": "y"}, "/v1/responses"),
        ([], "/v1/chat/completions"),
    ],
)
def test_the_body_tells_which_api_it_is_of(body, path):
    text = json.dumps(body)
    asked = json.loads(explain_question(text, {"x-session-id": "7"}))
    assert asked == {"path": path, "headers": {"x-session-id": "7"}, "body": text}


def test_a_body_without_a_prompt_leaves_nothing_to_explain():
    with pytest.raises(InputError, match="the body is one for /v1/embeddings, which any replica"):
        explain_question('{"model": "m", "input": ["x"]}', {})


def test_what_is_no_json_goes_to_the_router_which_says_so():
    assert json.loads(explain_question("{", {}))["body"] == "{"


def test_an_answer_tells_who_gave_it():
    assert parse_explanation("router r", b'{"choice": null}') == {"by": "router r", "choice": None}
    for answer in (b"<html>", b"[1]"):
        with pytest.raises(ReachError, match="router r does not answer as a router of this version does"):
            parse_explanation("router r", answer)
