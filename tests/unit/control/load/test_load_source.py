from dataclasses import replace
from datetime import timedelta

from promptgroup_contract.fingerprint import short
from promptgroup_operator.engines.dialects.vllm import METRICS as VLLM
from promptgroup_operator.load.engine_history import EngineHistory
from promptgroup_operator.load.load_source import ScrapedLoad, load_subject
from promptgroup_operator.load.router_history import RouterHistory
from promptgroup_operator.load.router_metrics import RevisionGauges, RouterCounts
from promptgroup_operator.world.samples import Flow, Stratum, StratumKey
from promptgroup_operator.world.snapshot import GuestSubject, Key
from support.builders import FINGERPRINT, NOW, TEXT, ago, cold, pod, reading, revision

KEY = Key("chat", "support")


def test_a_revision_as_a_subject_is_its_warm_pods():
    found = load_subject(KEY, revision(pods=[pod("p0"), cold("p1")]), VLLM)
    assert found.pods == {"p0": ago(minutes=49)}
    assert found.serving == {"containerd://p0-0123456789ab": ago(minutes=49)}
    assert (found.measured.kv_tokens, found.measured.prefix_tokens) == (400_000, 96)
    assert (found.fingerprint, found.revision) == (FINGERPRINT, short(FINGERPRINT))
    assert found.declared_bytes == len(TEXT)
    assert found.deployment == f"support-{short(FINGERPRINT)}"


def test_engines_and_routers_come_together_in_one_load():
    engines, routers = EngineHistory(), RouterHistory()
    here = load_subject(KEY, revision(pods=[pod("p0")]), VLLM)
    (container,) = here.serving
    for seconds, tokens in ((0, 0), (60, 6000)):
        now = NOW + timedelta(seconds=seconds)
        engines.add(container, reading(tokens), now, (KEY, FINGERPRINT))
        counted = {short(FINGERPRINT): {StratumKey(): Stratum(tokens / 100)}}
        flows = {short(FINGERPRINT): Flow(tokens / 100)}
        stocks = {short(FINGERPRINT): RevisionGauges(sessions=3)}
        routers.add("r", {KEY: RouterCounts(flows, counted, stocks, near_misses=tokens / 100, near_miss_offset=7)}, now)
    load = ScrapedLoad(engines, routers).load(here, now)
    assert (load.stale, load.seconds, load.engines.queries) == ("", 60, 100)
    assert (load.clients.requests, load.clients.sessions, load.clients.declared_tokens) == (1, 3, 96)
    assert (load.drift.share, load.drift.at, load.drift.length) == (0.5, 7, len(TEXT))


def test_the_clients_of_guests_are_a_part_of_their_hosts_load():
    engines, routers = EngineHistory(), RouterHistory()
    guest = GuestSubject(Key("chat", "guest"), "0a0a0a0a", 300)
    here = replace(load_subject(KEY, revision(pods=[pod("p0")]), VLLM), guests=[guest])
    for seconds, requests in ((0, 0), (60, 60)):
        now = NOW + timedelta(seconds=seconds)
        pages = {}
        for key, short_form, sessions in ((KEY, short(FINGERPRINT), 3), (guest.key, guest.revision, 5)):
            counted = {short_form: {StratumKey(): Stratum(requests)}}
            stocks = {short_form: RevisionGauges(sessions=sessions, session_tokens=100, waiting=1)}
            pages[key] = RouterCounts({short_form: Flow(requests)}, counted, stocks)
        routers.add("r", pages, now)
    clients = ScrapedLoad(engines, routers).load(here, now).clients
    assert (clients.requests, clients.sessions, clients.session_tokens, clients.held) == (2, 8, 200, 2)
    assert clients.declared_tokens == 198


def test_a_guests_load_is_what_routers_count_of_it():
    engines, routers = EngineHistory(), RouterHistory()
    here = replace(load_subject(KEY, revision(pods=[pod("p0")]), VLLM), is_guest=True)
    source = ScrapedLoad(engines, routers)
    assert source.load(here, NOW).stale  # nobody was read
    for seconds, tokens in ((0, 0), (60, 6000)):
        now = NOW + timedelta(seconds=seconds)
        stocks = {
            short(FINGERPRINT): RevisionGauges(prompt_tokens=tokens, looked_up_tokens=tokens, cached_tokens=tokens / 2)
        }
        counted = {short(FINGERPRINT): {StratumKey(): Stratum(tokens / 100)}}
        routers.add("r", {KEY: RouterCounts({}, counted, stocks)}, now)
    assert source.load(here, now).engines.hit_rate == 0.5
    other = replace(here, key=Key("chat", "idle"))
    assert source.load(other, now).engines.queries == 0
