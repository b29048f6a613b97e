"""The books of a balancer, and bounded loads, under any sequence of picks, ends, failures and new tables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from promptgroup_contract.table import Engine, Policy
from promptgroup_router.apis.usage import Usage
from promptgroup_router.placement.balancer import Balancer
from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.health import Health
from promptgroup_router.policy.policies import LEAST_CAP, load_cap
from promptgroup_router.rings.building import build_index
from support.examples import examples
from support.tables import group, revision, slot, table

FACTOR = 125


@given(turns=st.lists(st.tuples(st.integers(1, 60), st.integers(0, 2)), min_size=1, max_size=8), data=st.data())
def test_whatever_a_client_makes_of_its_history_and_however_late_datagrams_are_the_last_turn_counts(turns, data):
    view = build_index(table(group("a")))
    candidates = view.names["a"].revisions[0].candidates
    one, two = Balancer(Health()), Balancer(Health())
    for each in (one, two):
        each.install(view, 0.0)
        each.peers.export(0.0)
    for messages, member in turns:
        demand = Demand(7, 11, prompt=3000, tier1=2000, history=2500, turn=messages)
        pick = one.pick(candidates.only(candidates.ready[member]), demand, 1.0)
        one.placed.first_token(pick, 1.0)
        one.placed.end(pick, None, 1.0)
    for report in data.draw(st.permutations(one.peers.export(1.0)[0])):
        two.peers.merge(1, [report], [], 1.0)
    assert two.locations.get(7).member == one.locations.get(7).member == pick.member.id


MARKS = [1, 2, 3, 4]
KINDS = st.tuples(
    st.integers(0, 5), st.integers(0, 4), st.integers(0, 2), st.sampled_from(["pick", "token", "end", "release"])
)


@given(steps=st.lists(KINDS, max_size=40))
def test_routers_that_hear_of_each_other_count_the_same_sessions_on_each_replica(steps):
    """Each step: a session, how many marks it shares with others, the router that it comes to, and what happens."""
    engine = Engine("one", kv_tokens=10_000_000, prefill_rate=8000)
    view = build_index(
        table(group("a", revision(slots=(slot(0), slot(1)), engine=engine), policy=Policy.EXPECTED_TTFT))
    )
    candidates = view.names["a"].revisions[0].candidates
    routers = [Balancer(Health()) for _ in range(3)]
    for router in routers:
        router.install(view, 0.0)
        router.peers.export(0.0)
    running, now = {}, 0.0
    for session, shares, arrives_at, action in steps:
        now += 0.01
        if session not in running and action == "pick":
            marks = [*MARKS[:shares], *(100 * (session + 1) + place for place in range(4 - shares))]
            demand = Demand(session + 1, session + 1, prompt=9000, marks=marks, lengths=[2000, 4000, 6000, 8000])
            running[session] = arrives_at, routers[arrives_at].pick(candidates, demand, now)
        elif session in running and action != "pick":
            number, pick = running[session]
            if action == "token":
                routers[number].placed.first_token(pick, now)
            else:
                del running[session]
                routers[number].placed.end(pick, None, now) if action == "end" else routers[number].placed.release(
                    pick, now
                )
        for sender, router in enumerate(routers):
            prefixes, (placements, loads) = router.peers.export_prefixes(), router.peers.export(now)
            for other in routers:
                if other is not router:
                    other.peers.merge_prefixes(prefixes)
                    other.peers.merge(sender, placements, loads, now)
        for id_ in routers[0].members.replicas:
            tokens = [router.members.replicas[id_].admitted for router in routers]
            assert max(tokens) - min(tokens) <= 1, (now, tokens)


class Books(RuleBasedStateMachine):
    """Whatever happens: loads are those of the open requests, and idle means idle."""

    running = Bundle("running")
    policy = Policy.EXPECTED_TTFT

    def __init__(self) -> None:
        super().__init__()
        self.health = Health()
        self.balancer = Balancer(self.health)
        self.lives = [0, 0, 0, 0]
        self.slots = 4
        self.now = 0.0
        self.open = []
        self.install()

    def install(self):
        held = tuple(slot(index, incarnation=str(self.lives[index])) for index in range(self.slots))
        engine = Engine("one", kv_tokens=60_000, prefill_rate=8000)
        view = build_index(
            table(group("a", revision(slots=held, engine=engine), policy=self.policy, load_factor_percent=FACTOR))
        )
        self.candidates = view.names["a"].revisions[0].candidates
        self.balancer.install(view, self.now)

    @rule(target=running, session=st.integers(0, 40), prompt=st.integers(1, 20_000), turn=st.integers(1, 5),
          streamed=st.booleans())  # fmt: skip
    def pick(self, session, prompt, turn, streamed):
        key = session * 0x9E3779B97F4A7C15 % 2**64
        well = [each for each in self.candidates.ready if self.health.available(each.id, each.incarnation, self.now)]
        well = well or self.candidates.ready
        loads = [self.balancer.placed.loads.get(each.id, 0) for each in well]
        demand = Demand(
            key, session % 3, prompt, tier1=prompt // 2, history=prompt * 2 // 3 if turn > 1 else 0, turn=turn,
            streamed=streamed,
        )  # fmt: skip
        pick = self.balancer.pick(self.candidates, demand, self.now)
        if pick is None:
            assert self.policy is Policy.EXPECTED_TTFT
            assert all(len(self.balancer.members.replicas[each.id].live) for each in well)
            return None
        assert pick.member in well
        assert 0 <= pick.cached <= prompt
        if self.policy is Policy.BOUNDED_LOAD:
            cap = load_cap(loads, FACTOR)
            assert self.balancer.placed.loads[pick.member.id] <= max(LEAST_CAP, cap)
            assert pick.member is next(
                each for each in self.candidates.order(key) if each in well and loads[well.index(each)] < cap
            )
        self.open.append(pick)
        return pick

    @rule(pick=running)
    def first_token(self, pick):
        if pick is not None:
            self.balancer.placed.first_token(pick, self.now)

    @rule(pick=consumes(running), cached=st.integers(0, 20_000), twice=st.booleans(), fails=st.booleans())
    def end(self, pick, cached, twice, fails):
        if pick is None:
            return
        for _ in range(2 if twice else 1):
            if fails:
                self.balancer.placed.release(pick, self.now)
            else:
                prompt = pick.demand.prompt
                self.balancer.placed.end(pick, Usage(prompt, min(cached, prompt), 10), self.now)
        self.open.remove(pick)

    @rule(slot=st.integers(0, 3))
    def fail(self, slot):
        member = next((each for each in self.candidates.ready if each.slot == slot), None)
        if member is not None:
            self.health.failed(member.id, member.incarnation, self.now)

    @rule(slot=st.integers(0, 3))
    def restart(self, slot):
        self.lives[slot] += 1
        self.install()

    @rule(slots=st.integers(1, 4))
    def scale(self, slots):
        self.slots = slots
        self.install()

    @rule(seconds=st.floats(0, 40))
    def wait(self, seconds):
        self.now += seconds

    @invariant()
    def books_are_those_of_the_open_requests(self):
        for id_, replica in self.balancer.members.replicas.items():
            mine = [pick for pick in self.open if pick.replica is replica]
            assert replica.in_flight == len(mine) == self.balancer.placed.loads.get(id_, 0)
            assert replica.context == pytest.approx(sum(pick.demand.prompt for pick in mine))
            assert 0 <= replica.wait(self.now) <= max(0.0, replica.pending)
            assert replica.late(self.now) >= 0
            assert replica.live.tokens >= 0
            if not replica.queue:
                assert replica.wait(self.now + 1e6) == 0
            if not mine:
                assert replica.late(self.now + 1e6) == 0


class BoundedBooks(Books):
    policy = Policy.BOUNDED_LOAD


TestBooks = pytest.mark.slow(Books.TestCase)
TestBoundedBooks = pytest.mark.slow(BoundedBooks.TestCase)
TestBooks.settings = TestBoundedBooks.settings = examples(60)
