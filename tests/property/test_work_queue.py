"""The queue against a model of it: what is added is taken, once, when it is due, and never twice at a time.

What failed is taken no sooner than the server asked, and what was added while it ran does not hasten it.
"""

from datetime import timedelta

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from promptgroup_operator.passes.work_queue import AHEAD, WorkQueue
from promptgroup_operator.world.snapshot import Key
from support.examples import examples

KEYS = st.sampled_from([Key("chat", name) for name in "abcd"])
SECONDS = st.integers(0, 10)


class Queue(RuleBasedStateMachine):
    """Time passes when told; a take that would wait finds the queue closed instead, and it is opened again."""

    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.queue = WorkQueue(lambda: self.now)
        self.queue._condition.wait = lambda _=None: setattr(self.queue, "_closed", True)
        self.due = {}
        self.ahead = set()
        self.not_before = {}
        self.running = {}

    def take(self):
        taken = self.queue.take()
        self.queue._closed = False
        return taken

    def plan(self, key, seconds):
        self.due[key] = min(self.due.get(key, float("inf")), self.now + seconds)

    @rule(key=KEYS, seconds=SECONDS)
    def add(self, key, seconds):
        self.queue.add(key, timedelta(seconds=seconds))
        self.plan(key, seconds)

    @rule(key=KEYS)
    def add_ahead(self, key):
        self.queue.add(key, ahead=True)
        self.plan(key, 0)
        self.ahead.add(key)

    @rule(seconds=SECONDS)
    def wait(self, seconds):
        self.now += seconds

    @rule()
    def take_one(self):
        ready = {
            key: due - AHEAD * (key in self.ahead)
            for key, due in self.due.items()
            if key not in self.running and due <= self.now and self.not_before.get(key, self.now) <= self.now
        }
        taken = self.take()
        assert taken == min(ready, key=lambda key: (ready[key], key), default=None)
        if taken is not None:
            del self.due[taken]
            self.not_before.pop(taken, None)
            self.running[taken] = taken in self.ahead
            self.ahead.discard(taken)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), seconds=st.none() | SECONDS)
    def succeed(self, data, seconds):
        key = data.draw(st.sampled_from(sorted(self.running)))
        del self.running[key]
        self.queue.done(key, timedelta(seconds=seconds) if seconds is not None else None)
        if seconds is not None:
            self.plan(key, seconds)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), seconds=SECONDS)
    def fail(self, data, seconds):
        key = data.draw(st.sampled_from(sorted(self.running)))
        if self.running.pop(key):
            self.ahead.add(key)
        after = self.queue.failed(key, timedelta(seconds=seconds))
        assert after >= timedelta(seconds=seconds)
        self.due[key] = self.now + after.total_seconds()
        if seconds:
            self.not_before[key] = self.now + seconds

    @invariant()
    def what_waits_is_what_was_added(self):
        assert set(self.queue._due) == set(self.due)


Queue.TestCase.settings = examples(100, stateful_step_count=30)
TestQueue = pytest.mark.heavy(Queue.TestCase)
