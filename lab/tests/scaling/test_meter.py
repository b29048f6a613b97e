import pytest

from promptgroup_operator.world.load import PromptDrift
from promptgroup_research.policies.ours import Ours
from promptgroup_research.scaling.meter import READ_SECONDS, Live, Meter
from promptgroup_research.simulator.workloads import chat
from promptgroup_research.simulator.world import World


def played(until=300.0, rate=8.0, replicas=2, drift=None, change=list):
    router = Ours()
    meter = Meter(router, 3000, lambda: Live(5, 1234.0, 2), drift)
    world = World(meter, change(chat(rate, until, 3)), replicas)
    world.run(until)
    return world, meter


def test_a_load_says_what_the_requests_of_the_window_did():
    world, meter = played()
    load = meter.load(120)
    begin, end = 300 - 120, 300
    assert load.seconds == 120
    first = [turn for turn in world.turns if begin < turn.first <= end]
    done = [turn for turn in world.turns if begin < turn.ended <= end]
    engines = load.engines
    assert engines.queries * 120 == pytest.approx(sum(turn.prompt for turn in first))
    assert engines.hits * 120 == pytest.approx(sum(turn.cached for turn in first))
    assert engines.computed == pytest.approx(engines.queries - engines.hits)
    assert engines.requests * 120 == pytest.approx(len(done))
    assert engines.generated * 120 == pytest.approx(sum(turn.output for turn in done))
    assert engines.prefill_busy * 120 == pytest.approx(sum(turn.first - turn.admitted for turn in done))
    assert engines.decode_busy * 120 == pytest.approx(sum(turn.ended - turn.first for turn in done))
    assert engines.first_token.total == len(first)
    assert engines.replicas == pytest.approx(2)
    assert (load.clients.sessions, load.clients.session_tokens, load.clients.held) == (5, 1234.0, 2)
    assert load.clients.declared_tokens == 3000
    assert load.clients.opening == pytest.approx(sum(not turn.number for turn in first) / len(first))


def test_gauges_are_near_what_littles_law_says():
    _, meter = played(600)
    engines = meter.load(480).engines
    assert engines.running == pytest.approx(engines.prefill_busy + engines.decode_busy, rel=0.25)
    assert 0 < engines.usage < 1


def test_before_the_second_reading_nothing_is_known():
    router = Ours()
    meter = Meter(router, 0, lambda: Live(0, 0.0, 0))
    World(meter, chat(2, 30, 1), 1).run(READ_SECONDS / 2)
    assert meter.load(60).engines is None


def test_a_window_that_is_not_filled_yet_covers_less():
    _, meter = played(60)
    assert meter.load(120).engines.coverage == pytest.approx(0.5)


def test_a_prompt_drift_is_told_with_the_share_of_requests_that_do():
    def drifting(sessions):
        for session in sessions[::2]:
            for turn in session.turns:
                turn.nodes = tuple(-1 - node for node in turn.nodes)
        return sessions

    drift = PromptDrift(1.0, 18, 9000)
    _, none = played(drift=drift)
    world, meter = played(drift=drift, change=drifting)
    assert none.load(120).drift is None
    first = [turn for turn in world.turns if 180 < turn.first <= 300]
    share = sum(turn.nodes[0] < 0 for turn in first) / len(first)
    assert meter.load(120).drift == PromptDrift(pytest.approx(share), 18, 9000)
    assert 0.2 < share < 0.8
