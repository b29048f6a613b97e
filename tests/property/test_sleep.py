"""A group that falls asleep and is woken, in simulated time: no request is lost, whenever it comes."""

import random
from datetime import UTC, datetime, timedelta

from promptgroup_operator.api.prompt_group import SizingSpec
from promptgroup_operator.sleep.decision import Seen, decide
from promptgroup_operator.sleep.route_sleep import AWAKE, remembered
from promptgroup_operator.world.samples import Calls
from support.loads import load

NOW = datetime(2026, 11, 3, 12, tzinfo=UTC)
IDLE = timedelta(minutes=30)
SIZING = SizingSpec.model_validate({"minReplicas": 0, "maxReplicas": 4, "idleAfter": "30m"})
QUIET = load(0, replicas=1, sessions=0)
BUSY = load(0, replicas=1, sessions=0, running=1)
TRIES = 10_000


class Life:
    """A group over simulated seconds: its operator, and a router that is up to two seconds behind the route."""

    def __init__(self, drawn, skew):
        self.drawn, self.skew = drawn, skew
        self.now = NOW
        self.standing = AWAKE
        self.idle = None
        self.called = None
        self.ready = True
        self.start = drawn.uniform(1, 90)
        self.warm_at = None
        self.known = self.standing, self.ready
        """What the router knows."""
        self.last = NOW
        self.served = self.held = False
        self.written = []

    def second(self, length):
        """Let time pass."""
        self.now += timedelta(seconds=length)
        if self.warm_at is not None and self.now >= self.warm_at:
            self.ready, self.warm_at = True, None
        if self.held and self.known[1]:
            self.held, self.served, self.last = False, True, self.now

    def ask(self):
        """A request comes: it is served by a replica that the router knows, or held."""
        if self.known[1] and self.ready:
            self.served, self.last = True, self.now
        else:
            self.held, self.called = True, self.now + self.skew

    def look(self):
        """A pass of the operator."""
        quiet = self.now - self.last > timedelta(minutes=1)
        called = min(self.called, self.now) if self.called is not None else None
        state = Seen(
            standing=self.standing,
            load=(QUIET if quiet else BUSY) if self.ready else None,
            calls=Calls(called, read=True),
            idle_since=self.idle,
            releasing=False,
            ready=self.ready,
        )
        rest = decide(SIZING, state, 1, self.now)
        self.idle = None if rest.asleep else rest.since
        value = 0 if rest.asleep else 1
        if rest.asleep:
            self.ready, self.warm_at = False, None
        elif not self.ready and self.warm_at is None:
            self.warm_at = self.now + timedelta(seconds=self.start)
        before = self.standing
        self.standing = remembered(before, timeout=300, value=value, ready=self.ready, failure="", now=self.now)
        if bool(before.since) != bool(self.standing.since):
            self.written.append(value)

    def tell(self):
        """The router learns the route."""
        self.known = self.standing, self.ready


def test_a_request_at_the_moment_of_the_last_drain_is_served_whenever_it_comes():
    drawn = random.Random(0)
    wakes = 0
    for _ in range(TRIES):
        life = Life(drawn, timedelta(seconds=drawn.uniform(-600, 600)))
        life.idle = NOW - IDLE + timedelta(seconds=2)
        life.last = NOW - IDLE - timedelta(minutes=2)
        comes = NOW + timedelta(seconds=drawn.uniform(0, 6))
        asked, restarts = False, drawn.random() < 0.2
        for _ in range(400):
            life.second(drawn.uniform(0.1, 1))
            if not asked and life.now >= comes:
                asked = True
                life.ask()
                if restarts:
                    life.idle = None
            if drawn.random() < 0.8:
                life.look()
            if drawn.random() < 0.5:
                life.tell()
            if life.served:
                break
        assert life.served
        assert life.written in ([], [0], [0, 1])
        wakes += life.written == [0, 1]
    assert 1000 < wakes < 9000
