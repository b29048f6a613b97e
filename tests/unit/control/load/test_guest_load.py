from dataclasses import replace

from promptgroup_operator.load import guest_load
from promptgroup_operator.world.engine_facts import Measured

CLIENTS = replace(
    guest_load.NO_CLIENTS, requests=10, errors=1, prompt_tokens=1000, answer_tokens=90, looked_up=500, cached=400
)
KNOWN = Measured(kv_tokens=10_000, prefill_rate=900)


def test_a_guest_finds_what_answers_report_on_replicas_of_its_host():
    load = guest_load.load(CLIENTS, None, 3, KNOWN)
    engines = load.engines
    assert (engines.requests, engines.queries, engines.hits, engines.generated) == (9, 1000, 800, 90)
    assert (engines.hit_rate, engines.kv_tokens, engines.prefill_rate, engines.replicas) == (0.8, 10_000, 900, 3)
    assert (load.is_guest, load.stale) == (True, "")


def test_what_nobody_reports_is_not_known():
    silent = replace(CLIENTS, looked_up=0, cached=0)
    assert guest_load.load(silent, None, 3, KNOWN).engines is None
    assert guest_load.load(silent, None, 3, KNOWN).stale == guest_load.NOT_REPORTED
    assert guest_load.load(None, None, 3, KNOWN).stale == guest_load.NO_ROUTER


def test_a_guest_without_requests_is_idle_and_not_unknown():
    load = guest_load.load(guest_load.NO_CLIENTS, None, 3, KNOWN)
    assert (load.engines.queries, load.engines.hit_rate, load.stale) == (0, None, "")
