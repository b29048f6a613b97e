import pytest

from promptgroup_picker.extproc.messages import MODE_FULL_DUPLEX, MODE_NONE
from promptgroup_picker.extproc.shown_answer import ShownAnswer
from promptgroup_picker.http2.grpc_messages import GrpcError
from promptgroup_router.apis.endpoints import ENDPOINTS
from promptgroup_router.base.errors import Failure, RewriteError
from promptgroup_router.routing.points import Answering

PATH = b"/v1/chat/completions"
TOKEN = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
ROLE = b'data: {"choices":[{"delta":{"role":"assistant"}}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1}}\n\n'
ABORT = b'data: {"choices":[{"delta":{},"finish_reason":"abort"}]}\n\n'


class Life:
    """Remembers what the books were told."""

    def __init__(self, rewriter=None):
        self.did = []
        self.rewriter = rewriter

    def head(self, status, **how):
        answer = Answering(None, status, **how)
        answer.rewriter = self.rewriter
        return answer

    def relaying(self, status, _now):
        self.did.append(("relaying", status))

    def ended(self, usage, _now):
        self.did.append(("ended", usage and usage.prompt_tokens))

    def failed(self, failure, _now):
        self.did.append(("failed", failure))

    def cut(self, _now):
        self.did.append("cut")

    def unseen(self, _now):
        self.did.append("unseen")

    def client_left(self, _now):
        self.did.append("client left")


class Demand:
    streamed = True


class Route:
    demand = Demand()
    features = ()


def shown(mode=MODE_FULL_DUPLEX, rewriter=None, *, streamed=True, status=200):
    life = Life(rewriter)
    answer = ShownAnswer(life, Route(), ENDPOINTS[PATH], {b":path": PATH}, mode)
    answer.begin(status, streamed=streamed, compressed=False, now=0.0)
    return answer, life


def take(answer, data, *, end=False):
    passed = answer.passed(data, end=end)
    answer.came(data, 0.0)
    return passed


def test_the_first_token_is_the_first_byte_of_a_stream():
    answer, life = shown()
    take(answer, ROLE)
    assert (life.did, answer.relays) == ([], False)
    take(answer, TOKEN)
    assert life.did == [("relaying", 200)]
    take(answer, USAGE, end=True)
    answer.end(0.0)
    assert life.did[1:] == [("ended", 9)]


def test_a_stream_that_breaks_off_ends_with_an_error_and_its_slot_has_failed():
    answer, life = shown()
    take(answer, TOKEN)
    passed = take(answer, ABORT)
    assert b"error" in passed
    assert answer.broken
    assert take(answer, TOKEN) == b""
    answer.break_off(0.0)
    assert life.did == [("relaying", 200), ("failed", Failure.ABORTED), "cut"]


def test_a_whole_answer_that_breaks_off_is_found_at_its_end():
    answer, life = shown(streamed=False)
    take(answer, b'{"choices":[{"message":{"content":""},"finish_reason":"abort"}]}', end=True)
    answer.end(0.0)
    assert life.did[-1] == "cut"


class Refusing:
    def feed(self, _content):
        raise RewriteError

    def finish(self):
        return b""


def test_an_answer_that_cannot_be_rewritten_fails():
    with pytest.raises(GrpcError):
        shown(rewriter=Refusing())[0].passed(TOKEN, end=False)


def test_a_gateway_that_shows_no_answer_gets_none_rewritten_and_leaves_at_once():
    answer, life = shown(MODE_NONE, rewriter=Refusing())
    assert answer.passed(TOKEN, end=False) == TOKEN
    answer.leave(0.0, sent=True)
    assert life.did == ["unseen"]


@pytest.mark.parametrize("sent", [True, False])
def test_whoever_leaves_before_the_end_has_left(sent):
    answer, life = shown()
    answer.leave(0.0, sent=sent)
    assert life.did == ["client left"]
