"""Bounded loads under any sequence of picks, releases and failures."""

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from promptgroup_router.balance import LEAST_CAP, Balancer, Keys, load_cap
from promptgroup_router.health import Health
from promptgroup_router.view import view_of
from support.tables import group, revision, table

FACTOR = 125


class BoundedLoads(RuleBasedStateMachine):
    running = Bundle("running")

    def __init__(self) -> None:
        super().__init__()
        view = view_of(table(group("a", revision(slots=4), load_factor_percent=FACTOR)))
        self.pool = view.names["a"].revisions[0].pool
        self.health = Health()
        self.balancer = Balancer(self.health)
        self.open = 0
        self.now = 0.0

    @rule(target=running, key=st.integers(0, 2**64 - 1), few=st.booleans())
    def pick(self, key, few):
        key = key % 3 if few else key
        well = [each for each in self.pool.ready if self.health.available(each.id, "a", self.now)] or self.pool.ready
        loads = [self.balancer.loads.get(each.id, 0) for each in well]
        pick = self.balancer.pick(self.pool, Keys(key, key), self.now)
        assert pick.member in well
        assert self.balancer.loads[pick.member.id] <= max(LEAST_CAP, load_cap(loads, FACTOR))
        first_with_room = next(
            each for each in self.pool.order(key) if each in well and loads[well.index(each)] < load_cap(loads, FACTOR)
        )
        assert pick.member is first_with_room
        self.open += 1
        return pick

    @rule(pick=consumes(running), twice=st.booleans())
    def release(self, pick, twice):
        self.balancer.release(pick)
        if twice:
            self.balancer.release(pick)
        self.open -= 1

    @rule(slot=st.integers(0, 3))
    def fail(self, slot):
        self.health.failed(self.pool.ready[slot].id, "a", self.now)

    @rule(seconds=st.floats(0, 40))
    def wait(self, seconds):
        self.now += seconds

    @invariant()
    def loads_are_those_of_the_open_requests(self):
        assert sum(self.balancer.loads.values()) == self.open
        assert all(load > 0 for load in self.balancer.loads.values())


TestBoundedLoads = BoundedLoads.TestCase
