"""One request among a few replicas, whose events a test plays."""

from promptgroup_contract.table import TimeLimits
from promptgroup_router.decision.composition import router_state
from promptgroup_router.decision.exchange import Exchange
from promptgroup_router.policy.demand import Demand
from support.script import play
from support.tables import group, revision, table


class Case:
    """A request over some slots, whose order is known."""

    def __init__(self, slots: int, deadline: float = 160.0, *, streamed: bool = True) -> None:
        self.state = router_state()
        limits = TimeLimits(first_token=30, idle=10)
        self.state.install(table(group("a", revision(slots=slots), time_limits=limits)), "file", 0.0)
        self.candidates = self.state.index.names["a"].revisions[0].candidates
        self.exchange = Exchange(self.state, self.candidates, Demand(7, 7, streamed=streamed), deadline)
        self.order = [member.slot for member in self.candidates.order(7)]

    def play(self, script: str) -> None:
        """`home`, `next` and `third` stand for the session's choices."""
        for word, place in zip(("home", "next", "third", "fourth"), self.order, strict=False):
            script = script.replace(word, str(place))
        play(self.exchange, script)

    def ejected(self, now: float = 100.0) -> list[int]:
        return [each.slot for each in self.candidates.ready if not self.state.health.available(each.id, "a", now)]
