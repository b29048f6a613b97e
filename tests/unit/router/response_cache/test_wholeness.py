"""Which answers are whole."""

import pytest

from promptgroup_router.apis.request import ApiKind
from promptgroup_router.response_cache.wholeness import is_whole

DONE = b"data: [DONE]\n\n"
WORD = b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":null}]}\n\n'
BODY = b'{"choices":[{"message":{},"finish_reason":"stop"}]}'


@pytest.mark.parametrize(
    ("kind", "pieces", "streamed", "whole"),
    [
        (ApiKind.CHAT, [WORD, DONE], True, True),
        (ApiKind.CHAT, [WORD], True, False),
        (ApiKind.CHAT, [], True, False),
        (ApiKind.CHAT, [WORD, b"data: [DONE]"], True, False),
        (ApiKind.CHAT, [WORD, b'data: {"error":{"code":500}}\n\n', DONE], True, False),
        (ApiKind.CHAT, [b'data: {"choices":[{"finish_reason":"abort"}]}\n\n', DONE], True, False),
        (
            ApiKind.CHAT,
            [b'data: {"choices":[{"delta":{"content":"say \\"error\\" and \\"abort"}}]}\n\n', DONE],
            True,
            True,
        ),
        (ApiKind.CHAT, [WORD.replace(b'"x"', b'"[DONE]"')], True, False),
        (ApiKind.CHAT, [WORD, b"data: [DONE]\r\n\r\n"], True, True),
        (ApiKind.CHAT, [WORD, b"data:[DONE]\n\n"], True, True),
        (ApiKind.MESSAGES, [b'data: {"type":"content_block_delta","delta":{"text":"message_stop"}}\n\n'], True, False),
        (ApiKind.MESSAGES, [b'event: message_stop\ndata: {"type":"message_stop"}\n\n'], True, True),
        (ApiKind.MESSAGES, [b'event: error\ndata: {"type":"error","error":{}}\n\n'], True, False),
        (ApiKind.CHAT, [BODY], False, True),
        (ApiKind.TEXT, [BODY.replace(b"stop", b"length")], False, True),
        (ApiKind.CHAT, [BODY.replace(b"stop", b"error")], False, False),
        (ApiKind.CHAT, [BODY.replace(b'"stop"', b"null")], False, False),
        (ApiKind.CHAT, [b'{"error":{"message":"x"}}'], False, False),
        (ApiKind.CHAT, [b"half of"], False, False),
        (ApiKind.CHAT, [], False, False),
        (ApiKind.MESSAGES, [b'{"type":"message","stop_reason":"end_turn"}'], False, True),
        (ApiKind.MESSAGES, [b'{"type":"error","error":{}}'], False, False),
    ],
)
def test_an_answer_is_whole_if_it_says_why_it_ended(kind, pieces, streamed, whole):
    assert is_whole(kind, pieces, streamed=streamed) is whole
