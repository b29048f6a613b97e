"""Requests that wait for keys of an issuer; whole routers and a real issuer are in `feed/test_issuer_feed.py`."""

import pytest

from promptgroup_router.base.errors import KeysAwaitedError
from promptgroup_router.proxy import key_waits
from promptgroup_router.proxy.key_waits import MOST_WAITING, WAIT_SECONDS, KeyWaits

pytestmark = pytest.mark.interpreted


class Active:
    """A request that is answered once its wait is over."""

    def __init__(self):
        self.events = []

    def __getattr__(self, name):
        return lambda *arguments: self.events.append((name, *arguments))


class Handling:
    """Handles requests whose keys are known, and writes down what it refuses."""

    def __init__(self):
        self.known = False
        self.handled, self.refused = [], []
        self.active = Active()

    def handle(self, _client, request, came):
        if not self.known:
            raise KeysAwaitedError(503, "the keys are being read")
        self.handled.append((request, came))
        return self.active

    def refuse(self, error, _client, request):
        self.refused.append((request, error.status))


@pytest.fixture
def steps():
    return Handling()


def waiting(steps, waits=None):
    return (waits or KeyWaits(steps)).add(None, "request", 5.0, KeysAwaitedError(503, "the keys are being read"))


def test_a_request_goes_on_with_the_time_at_which_it_came(steps):
    waits = KeyWaits(steps)
    found = waiting(steps, waits)
    waits.look()  # another issuer was read
    assert (steps.handled, steps.refused) == ([], [])
    steps.known = True
    waits.look()
    waits.look()
    assert steps.handled == [("request", 5.0)]
    found.tick(5.0 + WAIT_SECONDS)
    assert steps.active.events == [("tick", 5.0 + WAIT_SECONDS)]
    assert steps.refused == []


def test_a_wait_has_an_end(steps):
    waits = KeyWaits(steps)
    found = waiting(steps, waits)
    found.tick(4.9 + WAIT_SECONDS)
    assert steps.refused == []
    found.tick(5.0 + WAIT_SECONDS)
    found.tick(6.0 + WAIT_SECONDS)
    assert steps.refused == [("request", 503)]
    steps.known = True
    waits.look()
    assert steps.handled == []


def test_what_waits_and_what_answers_learn_of_their_client(steps):
    waits = KeyWaits(steps)
    gone, slow = waiting(steps, waits), waiting(steps, waits)
    gone.client_left()
    slow.pause()
    steps.known = True
    waits.look()
    assert len(steps.handled) == 1
    slow.resume()
    slow.client_left()
    assert steps.active.events == [("pause",), ("resume",), ("client_left",)]


def test_few_wait_at_a_time(steps, monkeypatch):
    assert MOST_WAITING == 256
    monkeypatch.setattr(key_waits, "MOST_WAITING", 2)
    waits = KeyWaits(steps)
    found = [waiting(steps, waits) for _ in range(2)]
    assert waits.full
    found[0].client_left()
    assert not waits.full
