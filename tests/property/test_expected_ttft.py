"""Expected TTFT against its formula, under any sequence of requests, among them such whose first token is late."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from promptgroup_contract.table import Engine
from promptgroup_router.apis.usage import Usage
from promptgroup_router.placement.balancer import Balancer
from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.health import Health
from promptgroup_router.rings.building import build_index
from support.examples import examples
from support.tables import group, revision, table

PROBES = [Demand(each * 0x9E3779B97F4A7C15 % 2**64, 1, 4000, tier1=2000) for each in range(1000, 1006)]
PROBES += [Demand(7, 1, 4000, tier1=2000, declared=False), Demand(1006, 1, 9000, tier1=2000, history=8000, turn=3)]
"""Sessions without a record: nearly all that is compared for them is computed by the shortened formula."""


class Choices(RuleBasedStateMachine):
    """The member that is chosen has the least cost, as the plain formula computes it; none where none has room."""

    running = Bundle("running")
    copy_rate = 0
    probes = PROBES

    def __init__(self) -> None:
        super().__init__()
        engine = Engine("one", kv_tokens=60_000, prefill_rate=8000, max_sequences=4, copy_rate=self.copy_rate)
        view = build_index(table(group("a", revision(slots=4, engine=engine))))
        self.candidates = view.names["a"].revisions[0].candidates
        self.balancer = Balancer(Health())
        self.balancer.install(view, 0.0)
        self.now = 0.0

    @rule(target=running, session=st.integers(0, 20), prompt=st.integers(100, 20_000), slot=st.integers(0, 3))
    def send(self, session, prompt, slot):
        """Send a request to a slot, however loaded it is, so that replicas differ."""
        key = session * 0x9E3779B97F4A7C15 % 2**64
        tried = [each.id for each in self.candidates.members if each.slot != slot]
        return self.balancer.pick(self.candidates, Demand(key, session % 2, prompt, tier1=prompt // 2), self.now, tried)

    @rule(pick=running)
    def first_token(self, pick):
        if pick is not None:
            self.balancer.placed.first_token(pick, self.now)

    @rule(pick=consumes(running))
    def end(self, pick):
        if pick is not None:
            self.balancer.placed.end(pick, Usage(pick.demand.prompt, 0, 10), self.now)

    @rule(seconds=st.floats(0, 10))
    def wait(self, seconds):
        self.now += seconds

    @invariant()
    def the_cheapest_is_chosen_if_one_has_room(self):
        for demand in self.probes:
            chosen = self.balancer.preview(self.candidates, demand, self.now).member
            costs = self.balancer.costs_by_member(self.candidates, demand, self.candidates.members, self.now)
            totals = {id_: cost.total for id_, (cost, _) in costs.items()}
            assert (chosen is not None) == any(room for _, room in costs.values())
            if chosen is not None:
                assert totals[chosen.id] == pytest.approx(min(totals.values()), abs=1e-9)


class Copies(Choices):
    """The same where replicas share a KV tier, for sessions with a record, too."""

    copy_rate = 50_000
    probes = (
        *PROBES[:2],
        *(
            Demand(each * 0x9E3779B97F4A7C15 % 2**64, each % 2, 9000, tier1=2000, history=8000, turn=3)
            for each in range(6)
        ),
    )


TestChoices = pytest.mark.heavy(Choices.TestCase)
TestChoices.settings = examples(60)
TestCopies = pytest.mark.heavy(Copies.TestCase)
TestCopies.settings = examples(60)
