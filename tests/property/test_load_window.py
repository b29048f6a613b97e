"""Whatever engines and scrapes do, a rate is never negative and never above the truth."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from promptgroup_operator.load.engine_history import EngineHistory
from promptgroup_operator.world.engine_facts import UNKNOWN
from promptgroup_operator.world.load import LOAD_WINDOW
from promptgroup_operator.world.samples import Histogram
from promptgroup_operator.world.snapshot import Key, Spent
from support.builders import NOW, reading
from support.examples import examples

OF = (Key("chat", "support"), "fingerprint")


@dataclass
class Engine:
    """Counters of one process; what clients had is kept beside, with its time."""

    began: datetime
    container: str
    requests: int = 0
    queries: int = 0
    hits: int = 0

    def serve(self, requests):
        self.requests += requests
        self.queries += 100 * requests
        self.hits += 60 * requests

    def reading(self):
        computed = self.queries - self.hits
        return reading(
            self.queries,
            self.hits,
            requests=self.requests,
            generated=self.requests,
            computed=float(computed),
            prefill_seconds=computed / 1000,
            first_token=Histogram((1.0,), (self.requests, 0.0)),
        )


STEPS = st.lists(
    st.tuples(
        st.integers(0, 1),  # which engine
        st.sampled_from(("clients", "clients", "touch", "touch untold", "restart", "begin anew", "nothing")),
        st.integers(1, 50),  # requests
        st.integers(1, 40),  # seconds that pass
        st.booleans(),  # whether the engines are read then
    ),
    max_size=40,
)


@examples(300)
@given(STEPS)
def test_a_load_is_never_negative_and_never_above_what_clients_had(steps):
    now, count = NOW, 2
    found, engines = EngineHistory(), [Engine(NOW, "c0"), Engine(NOW, "c1")]
    served: list[tuple[datetime, int]] = []
    reads: list[datetime] = []
    for which, what, requests, seconds, read in steps:
        engine = engines[which]
        if what == "clients":
            engine.serve(requests)
            served.append((now, requests))
        elif what.startswith("touch"):
            engine.serve(2)
            found.spend(engine.container, Spent(200, 120 if what == "touch" else None, 2), now)
        elif what == "restart":
            engines[which] = Engine(now, f"c{count}")
            count += 1
        elif what == "begin anew":
            engines[which] = Engine(now, engine.container)
        now += timedelta(seconds=seconds)
        if not read:
            continue
        reads.append(now)
        for each in engines:
            found.add(each.container, each.reading(), now, OF)
        load = found.load(OF, {each.container: each.began for each in engines}, UNKNOWN, now)
        if load.engines is None:
            continue
        window = timedelta(seconds=load.seconds)  # it ended with the last reading that could be compared
        truth = max(sum(each for at, each in served if end - window <= at < end) for end in reads)
        told = load.engines
        assert load.seconds >= 0
        assert -1e-6 <= told.requests * load.seconds <= truth + 1e-6
        assert -1e-6 <= told.queries * load.seconds <= 100 * truth + 1e-6
        assert -1e-6 <= told.hits * load.seconds <= 60 * truth + 1e-6
        assert -1e-6 <= told.computed * load.seconds <= 40 * truth + 1e-6
        assert told.prefill_busy >= -1e-6
        assert told.first_token.total <= truth + 1e-6
        assert 0 <= told.coverage <= 1 + 1e-9
        assert told.replicas > 0
        assert told.hit_rate is None or 0 <= told.hit_rate <= 1


@examples(100)
@given(st.lists(st.tuples(st.integers(15, 60), st.integers(0, 50)), min_size=2, max_size=20))
def test_a_process_that_is_read_regularly_has_exactly_the_load_that_it_had(steps):
    now, found, engine = NOW, EngineHistory(), Engine(NOW, "c")
    total: list[tuple[datetime, datetime, int]] = []
    found.add("c", engine.reading(), now, OF)
    for seconds, requests in steps:
        engine.serve(requests)
        total.append((now, now + timedelta(seconds=seconds), requests))
        now += timedelta(seconds=seconds)
        found.add("c", engine.reading(), now, OF)
    load = found.load(OF, {"c": NOW}, UNKNOWN, now)
    spans = [(began, requests) for began, ended, requests in total if ended > now - LOAD_WINDOW]
    assert load.seconds == (now - spans[0][0]).total_seconds()
    assert abs(load.engines.requests * load.seconds - sum(each for _, each in spans)) < 1e-6
    assert abs(load.engines.coverage - 1) < 1e-9
