"""Requests at a picker whose token is signed with a key that nobody has read yet."""

import json

import pytest

from promptgroup_picker.extproc import processing
from promptgroup_router.access.issuer import Issuer, IssuerId
from promptgroup_router.decision.composition import router_state
from promptgroup_router.proxy.key_waits import WAIT_SECONDS
from support.grpcclient import OneRequest
from support.tables import group, revision, slot, table
from support.tokens import NOW, by_token, jwks, token
from support.wire import chat

CHAT = json.dumps(chat()).encode()
LARGE = json.dumps(chat(user="x" * 300_000)).encode()
NEW = {"authorization": f"Bearer {token('two').decode()}"}


@pytest.fixture
def request_():
    state, access = router_state(), by_token()
    known = group("support", revision(slots=(slot(0, address="10.0.0.1:8000"),)), access=access)
    state.install(table(known), "file", 0.0)
    state.features.authenticator.issuers = {IssuerId(access.jwks_uri, access.algorithms): Issuer()}
    found = OneRequest(state, now=100.0)
    state.features.authenticator.epoch = NOW - found.now
    learn(found, "one", at=50.0)
    return found


def issuer(request: OneRequest) -> Issuer:
    (found,) = request.picker.state.features.authenticator.issuers.values()
    return found


def learn(request: OneRequest, *names: str, at: float) -> None:
    """The issuer is asked at a time, and publishes these keys."""
    issuer(request).learn(jwks(*names), at)
    for look in request.picker.state.features.authenticator.on_keys:
        look()


def parts(responses) -> list[str]:
    return [each.WhichOneof("response") for each in responses]


def refusal(responses) -> tuple[int, str]:
    (answer,) = [each.immediate_response for each in responses]
    return answer.status.code, json.loads(answer.body)["error"]["code"]


def test_a_request_waits_for_the_key_of_its_token(request_):
    request_.head(**NEW)
    assert request_.body(CHAT) == []
    assert issuer(request_).wanted
    assert request_.body(b"") == []  # the last part can come twice
    assert list(request_.picker.awaiting) == list(request_.picker.open)
    learn(request_, "one", "two", at=101.0)
    assert parts(request_.heard()) == ["request_headers", "request_body"]
    assert not request_.picker.awaiting


def test_a_key_that_its_issuer_does_not_publish_is_refused_then(request_):
    request_.head(**NEW)
    request_.body(CHAT)
    learn(request_, "one", at=101.0)
    assert refusal(request_.heard()) == (401, "invalid_token")
    assert not request_.picker.awaiting
    assert not request_.picker.open


def test_a_wait_has_an_end(request_):
    request_.head(**NEW)
    request_.body(CHAT)
    request_.now += WAIT_SECONDS - 0.1
    request_.picker.tick(request_.now)
    assert request_.heard() == []
    request_.now += 0.2
    request_.picker.tick(request_.now)
    assert refusal(request_.heard()) == (503, "access_not_available")
    assert not request_.picker.awaiting
    learn(request_, "one", "two", at=request_.now)
    assert request_.heard() == []


def test_trailers_of_a_request_that_waits_come_behind_its_body(request_):
    request_.head(**NEW)
    request_.body(CHAT)
    assert request_.trailers() == []
    learn(request_, "two", at=101.0)
    assert parts(request_.heard()) == ["request_headers", "request_body", "request_trailers"]


def test_a_client_that_leaves_while_its_request_waits_is_forgotten(request_):
    request_.head(**NEW)
    request_.body(CHAT)
    request_.reset()
    assert not request_.picker.awaiting
    assert request_.picker.bodies.used == 0
    learn(request_, "two", at=101.0)
    assert request_.heard() == []


def test_few_wait_at_a_time(request_, monkeypatch):
    monkeypatch.setattr(processing, "MOST_WAITING", 1)
    request_.head(**NEW)
    assert request_.body(CHAT) == []
    request_.begin()
    request_.head(**NEW)
    assert refusal(request_.body(CHAT)) == (503, "access_not_available")
    assert len(request_.picker.awaiting) == 1


class Reading:
    """Reads large bodies, some time."""

    def __init__(self):
        self.asked = []

    def read(self, *what):
        self.asked.append(what)


def test_a_large_body_is_read_once_its_sender_is_known(request_):
    request_.picker.large_bodies = reading = Reading()
    request_.head(**NEW)
    request_.body(LARGE)
    assert not reading.asked
    learn(request_, "two", at=101.0)
    assert len(reading.asked) == 1
    learn(request_, "two", at=102.0)
    assert len(reading.asked) == 1
