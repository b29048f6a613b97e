"""The account of one request: what is counted at each of its ends."""

import logging
from types import SimpleNamespace

import pytest

from promptgroup_contract.access import ANONYMOUS, Caller
from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_router.apis.session_key import SessionKey
from promptgroup_router.apis.usage import Usage
from promptgroup_router.base.errors import ApiError, Failure
from promptgroup_router.base.logs import ACCESS
from promptgroup_router.base.metrics import LatencyHistogram, Metrics
from promptgroup_router.decision.record import RequestRecord, quarter
from promptgroup_router.features.tracing.sampling import Sampling
from promptgroup_router.features.tracing.tracer import Tracer
from promptgroup_router.placement.pick import Pick
from promptgroup_router.policy.costs import EngineCosts
from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.replica_load import ReplicaLoad
from promptgroup_router.policy.session_locations import Placement
from promptgroup_router.rings.ids import NO_MEMBER, MemberId, PrefixKey, member_hash
from promptgroup_router.rings.index import Member
from promptgroup_router.routing.match import MatchedBy
from promptgroup_router.routing.moves import Moves
from promptgroup_router.routing.process_points import ProcessFeatures
from support.accesslog import access_lines

pytestmark = pytest.mark.interpreted

GROUP, REVISION = "chat/support", "0123abcd"


class Tokens:
    """Stands for the estimates of lengths, and remembers what it was taught."""

    def __init__(self):
        self.taught = []

    def learn(self, *what):
        self.taught.append(what)


@pytest.fixture
def state():
    return SimpleNamespace(metrics=Metrics(), tokens=Tokens(), moves=Moves(), features=ProcessFeatures())


def picked(*, revision="0123abcdef", before=None, cached=90.0, history=80, tier1=50):
    """Return a request of 100 tokens that was sent to slot 0, whose engine computes 100 tokens a second."""
    costs, place = EngineCosts(kv_tokens=10_000, prefill_rate=100), f"chat/support/{revision}/0"
    replica = ReplicaLoad(member_hash(MemberId(place)), "c", costs, now=0.0)
    member = Member(MemberId(place), GROUP, Fingerprint(revision), 0, "10.0.0.1:8000", "c")
    pick = Pick(member, replica, Demand(SessionKey(7), PrefixKey(1), 1000, tier1, history), now=100.0)
    pick.before, pick.cached = before, cached
    return pick


@pytest.fixture
def lines():
    """The access log, turned on."""
    with access_lines() as found:
        yield found


def record(
    state,
    *,
    revision=REVISION,
    tries=1,
    moved_from=NO_MEMBER,
    streamed=True,
    pick=None,
    caller=ANONYMOUS,
    traceparent=b"",
):
    demand = SimpleNamespace(
        streamed=streamed,
        session=7,
        cached=True,
        unranked=False,
        marks=(),
        scope=None,
        instructions=0,
        estimated_bytes=100,
        counted=10,
    )
    route = SimpleNamespace(
        group=GROUP,
        revision=revision,
        matched_by=MatchedBy.NAME,
        demand=demand,
        model="m",
        caller=caller,
        session=SimpleNamespace(pinned=False),
        candidates=SimpleNamespace(order=lambda _key: iter((attempts.pick.member,))),
        features=(),
    )
    attempts = SimpleNamespace(
        tries=tries,
        moved_from=moved_from,
        new=True,
        pick=pick or picked(),
        member=SimpleNamespace(id=MemberId("chat/support/x/0"), label="chat/support/x/0"),
    )
    path = b"/v1/chat/completions"
    return RequestRecord(state, route, attempts, b"id", began=100.0, path=path, traceparent=traceparent)


def observed(histogram, *labels):
    """Return the number of observations with these labels, and their sum."""
    found = histogram.values.get(labels)
    return (sum(found.counts), found.sum) if found is not None else (0, 0)


def test_an_answer_counts_its_request_once_with_the_time_to_its_first_byte(state):
    record(state).answer_began(200, now=100.5)
    assert state.metrics.requests.values == {(GROUP, "200"): 1}
    assert observed(state.metrics.first_byte, GROUP) == (1, 0.5)


def test_a_stream_counts_its_times_by_the_share_of_its_prompt_that_was_found(state):
    served = record(state)
    served.answer_began(200, now=100.5)
    served.served(Usage(100, 60, 11), now=101.5)
    assert observed(state.metrics.ttft, GROUP, REVISION, "50-75") == (1, 0.5)
    assert observed(state.metrics.tpot, GROUP, REVISION, "50-75") == (1, pytest.approx(0.1))


@pytest.mark.parametrize(
    ("streamed", "status", "usage"),
    [(False, 200, Usage(100, 60, 11)), (True, 500, Usage(100, 60, 11)), (True, 400, None)],
    ids=["a whole answer", "an engine's error", "a client's error"],
)
def test_what_is_no_stream_that_came_whole_is_in_no_series_of_tokens_times(state, streamed, status, usage):
    served = record(state, streamed=streamed)
    served.answer_began(status, now=100.5)
    served.served(usage, now=101.5)
    assert state.metrics.ttft.values == state.metrics.tpot.values == {}


@pytest.mark.parametrize("status", [400, 500])
def test_an_error_is_in_no_series_of_time_or_tokens(state, status):
    served = record(state)
    served.answer_began(status, now=100.5)
    served.served(Usage(100, 60, 11), now=101.5)
    metrics = state.metrics
    assert metrics.first_byte.values == metrics.duration.values == metrics.revision_first_token.values == {}
    assert metrics.prompt_tokens.values == metrics.slot_prompt_tokens.values == metrics.saved_seconds.values == {}
    assert metrics.requests.values == {(GROUP, str(status)): 1}


QUARTERS = {(0, 100): "0-25", (24, 100): "0-25", (25, 100): "25-50", (74, 100): "50-75", (75, 100): "75-100",
            (100, 100): "75-100", (120, 100): "75-100", (None, 100): "unknown", (0, 0): "unknown"}  # fmt: skip


def test_quarters():
    assert {case: quarter(Usage(case[1], case[0])) for case in QUARTERS} == QUARTERS
    assert quarter(None) == "unknown"


def test_a_replica_counts_what_it_found_and_the_group_what_that_saved(state):
    served = record(state, pick=picked(tier1=0, history=0))
    served.answer_began(200, now=100.5)
    served.served(Usage(1000, 600), now=101.5)
    assert state.metrics.slot_prompt_tokens.values == {(GROUP, "0123abcd", "0", "0"): 1000}
    assert state.metrics.slot_cached_tokens.values == {(GROUP, "0123abcd", "0", "0"): 600}
    assert state.metrics.saved_seconds.values[GROUP, REVISION] == pytest.approx(6 * (1 + 300 / 30_000))
    assert state.metrics.missed_tokens.values == {}


def test_what_repeats_and_was_computed_anew_counts_with_its_cause(state):
    served = record(state, pick=picked(tier1=800, cached=0.0))
    served.answer_began(200, now=100.5)
    served.served(Usage(1000, 0), now=101.5)
    assert state.metrics.missed_tokens.values == {(GROUP, REVISION, "cold"): 800}
    assert state.metrics.missed_seconds.values[GROUP, REVISION, "cold"] == pytest.approx(8 * (1 + 400 / 30_000))


def test_what_was_evicted_counts_by_its_distance(state):
    pick = picked(tier1=50, history=900)
    pick.before = Placement(pick.member.id, PrefixKey(1), 3, 900.0, 0.0, 50.0)
    pick.replica.inherited, pick.written = -1.0, 25_000.0
    served = record(state, pick=pick)
    served.answer_began(200, now=100.5)
    served.served(Usage(1000, 100), now=101.5)
    assert state.metrics.revision_evicted.values == {(GROUP, REVISION, "4"): 800}


def test_the_access_log_has_a_line_for_each_request_in_the_conventions_names(state, lines):
    served = record(state, pick=picked(tier1=800, cached=800.0))
    served.answer_began(200, now=100.5)
    served.served(Usage(1000, 0, 7), now=101.5)
    [(event, line)] = lines
    assert event == "served"
    assert line["gen_ai.request.model"] == "m"
    assert (line["gen_ai.usage.input_tokens"], line["gen_ai.usage.output_tokens"]) == (1000, 7)
    assert (line["gen_ai.usage.cache_read.input_tokens"], line["promptgroup.expected_cached_tokens"]) == (0, 800)
    assert (line["promptgroup.missed_because"], line["promptgroup.slot"]) == ("evicted", f"{GROUP}/0123abcd/0")
    assert (line["promptgroup.first_byte_seconds"], line["promptgroup.seconds"]) == (0.5, 1.5)
    assert (line["promptgroup.placed_by"], line["promptgroup.moved"]) == ("home", False)
    assert (line["http.response.status_code"], "trace_id" in line) == (200, False)


def test_a_refusal_and_a_client_that_left_have_lines_too(state, lines):
    record(state, tries=0).refused(ApiError(503, "no room", code="overloaded"), 503, now=101.0)
    record(state, caller=Caller("team-a")).client_left(now=101.0)
    (first, refused), (second, left) = lines
    assert (first, refused["error.type"], refused["http.response.status_code"]) == ("refused", "overloaded", 503)
    assert (second, "error.type" in left, left["promptgroup.caller"]) == ("client left", False, "team-a")
    assert "promptgroup.caller" not in refused


def test_without_the_access_log_nothing_is_made_of_a_request(state, monkeypatch):
    logging.getLogger(ACCESS).setLevel(logging.CRITICAL + 1)
    monkeypatch.setattr(RequestRecord, "_line", None)
    record(state).served(None, now=101.0)


def test_a_span_has_the_tries_as_events_and_what_was_expected_and_seen(state):
    ended = []
    state.features.tracer = Tracer(
        Sampling(1.0, parent_based=True), lambda size: (7).to_bytes(size, "big"), ended.append
    )
    told = record(state, pick=picked(tier1=800, cached=800.0))
    told.waits(now=100.0)
    told.admitted(now=100.1)
    assert told.sent(now=100.1).endswith(b"-01")
    told.engine_failed(Failure.RESET, now=100.2)
    told.sent(now=100.2)
    told.answer_began(200, now=100.5)
    told.served(Usage(1000, 0, 7), now=101.5)
    [span] = ended
    assert [each.name for each in span.events] == ["waits", "admitted", "sent", "failed", "sent", "first byte"]
    assert span.events[3].attributes["error.type"] == Failure.RESET.value
    assert (span.name, span.error) == ("chat m", "")
    said = span.attributes
    assert (said["promptgroup.group"], said["promptgroup.revision"]) == (GROUP, REVISION)
    assert said["promptgroup.slot"] == f"{GROUP}/0123abcd/0"
    assert (said["promptgroup.placed_by"], said["promptgroup.outcome"]) == ("home", "served")
    assert (said["promptgroup.expected_cached_tokens"], said["gen_ai.usage.cache_read.input_tokens"]) == (800, 0)
    assert (said["gen_ai.response.time_to_first_chunk"], said["gen_ai.request.stream"]) == (0.5, True)
    assert all(isinstance(value, str | bool | int | float) for value in said.values())


@pytest.mark.parametrize(
    ("end", "error", "kind"),
    [
        (lambda told: told.cut(101.0), "cut", "cut"),
        (lambda told: told.client_left(101.0), "", None),
        (lambda told: told.refused(ApiError(503, "full", code="overloaded"), 503, 101.0), "overloaded", "overloaded"),
        (lambda told: told.refused(ApiError(400, "wrong", code="wrong"), 400, 101.0), "", "wrong"),
    ],
    ids=["cut", "client left", "refused", "refused for the client's fault"],
)
def test_a_span_is_an_error_where_the_answer_is_not_what_it_should_be(state, end, error, kind):
    ended = []
    state.features.tracer = Tracer(
        Sampling(1.0, parent_based=True), lambda size: (7).to_bytes(size, "big"), ended.append
    )
    end(record(state))
    assert (ended[0].error, ended[0].attributes.get("error.type")) == (error, kind)


def test_a_request_that_is_not_sampled_makes_no_span_and_tells_the_engine_so(state, lines, monkeypatch):
    state.features.tracer = Tracer(Sampling(0.0, parent_based=True), lambda size: b"\xff" * size, None)
    told = record(state)
    assert told.sent(now=100.1).endswith(b"-00")
    told.served(None, now=101.0)
    [(_, line)] = lines
    assert line["trace_id"] == f"{2**128 - 1:032x}"


def marked(state):
    """Return the names of histograms, and the traces that their buckets name with values and times."""
    return {
        metric.name.removeprefix("promptgroup_router_"): tuple(exemplar)
        for metric in state.metrics.all
        if isinstance(metric, LatencyHistogram)
        for known in metric.values.values()
        for exemplar in known.exemplars.values()
    }


def serve(told):
    told.waits(now=100.0)
    told.admitted(now=100.25)
    told.answer_began(200, now=100.5)
    told.served(Usage(100, 60, 11), now=101.5)


def test_the_trace_of_a_sampled_request_is_the_exemplar_of_each_of_its_times(state):
    ended = []
    state.metrics.epoch = 1000.0
    state.features.tracer = Tracer(
        Sampling(1.0, parent_based=True), lambda size: (7).to_bytes(size, "big"), ended.append
    )
    serve(record(state))
    trace = ended[0].context.trace
    assert trace
    assert marked(state) == {
        "queued_seconds": (trace, 0.25, 1100.25),
        "time_to_first_byte_seconds": (trace, 0.5, 1100.5),
        "revision_first_token_seconds": (trace, 0.5, 1100.5),
        "time_to_first_token_seconds": (trace, 0.5, 1101.5),
        "time_per_output_token_seconds": (trace, pytest.approx(0.1), 1101.5),
        "request_duration_seconds": (trace, 1.5, 1101.5),
    }


@pytest.mark.parametrize("flags", [0, 1])
def test_without_spans_of_its_own_a_router_names_the_traces_that_clients_record(state, flags):
    serve(record(state, traceparent=f"00-{9:032x}-{5:016x}-{flags:02x}".encode()))
    assert {trace for trace, _, _ in marked(state).values()} == ({9} if flags else set())


@pytest.mark.parametrize("traceparent", [b"", f"00-{9:032x}-{5:016x}-01".encode()], ids=["no trace", "a client's"])
def test_a_request_whose_span_is_not_recorded_is_no_exemplar(state, traceparent):
    state.features.tracer = Tracer(Sampling(0.0, parent_based=False), lambda size: b"\xff" * size, None)
    serve(record(state, traceparent=traceparent))
    assert marked(state) == {}


def test_without_spans_engines_get_the_clients_header(state):
    assert record(state).sent(now=100.1) == b""


def test_a_request_that_waits_counts_how_long(state):
    waited = record(state)
    waited.waits(now=100.0)
    waited.admitted(now=102.5)
    waited.admitted(now=109.0)
    assert observed(state.metrics.queued_seconds, GROUP) == (1, 2.5)


def test_an_error_of_the_engine_is_no_first_token_of_the_revision(state):
    failed = record(state)
    failed.answer_began(500, now=101.0)
    failed.served(None, now=102.0)
    assert observed(state.metrics.revision_first_token, GROUP, REVISION, "first", "name", "true") == (0, 0)
    assert state.metrics.revision_requests.values == {(GROUP, REVISION, "first", "name", "true", "failed"): 1}


def test_usage_counts_tokens_and_teaches_the_estimate(state):
    served = record(state)
    served.answer_began(200, now=100.1)
    served.served(Usage(110, 64), now=101.0)
    assert state.metrics.prompt_tokens.values == {(GROUP,): 110}
    assert state.metrics.cached_tokens.values == {(GROUP,): 64}
    assert state.tokens.taught == [("m", 100, 100)]


def test_a_refusal_for_want_of_room_is_no_fault_of_the_revision(state):
    record(state, tries=0).refused(ApiError(503, "no room", code="overloaded"), 503, now=101.0)
    assert state.metrics.requests.values == {(GROUP, "503"): 1}
    assert state.metrics.revision_requests.values == {}


@pytest.mark.parametrize(("end", "who", "failed"), [("cut", "engine", 1), ("client_left", "client", 0)])
def test_an_answer_without_an_end_names_who_ended_it(state, end, who, failed):
    getattr(record(state), end)(now=101.0)
    assert state.metrics.cut.values == {(GROUP, who): 1}
    assert sum(state.metrics.revision_requests.values.values()) == failed


def test_a_session_that_moved_is_counted_when_its_answer_begins(state):
    record(state, moved_from=MemberId("chat/support/x/3")).answer_began(200, now=100.1)
    assert state.metrics.sessions_moved.values == {(GROUP,): 1}
    (move,) = state.moves.documents(now=100.1)
    assert (move["from"], move["to"]) == ("chat/support/x/3", "chat/support/x/0")
    record(state).answer_began(200, now=100.1)
    assert state.metrics.sessions_moved.values == {(GROUP,): 1}


LIKE = {
    # what is different of a first turn on a replica of its own → turn of its count and its cache, turn of its time
    "nothing": ({}, "first", "first"),
    "it was lent a replica of another revision": ({"revision": "7777777777"}, "other", "other"),
    "the replica computes prompts of others first": ({"ahead": True}, "first", "other"),
    "it has waited for room": ({"waited": True}, "first", "other"),
    "a replica failed before": ({"tries": 2}, "first", "other"),
}


@pytest.mark.parametrize("case", LIKE)
def test_what_says_nothing_of_a_revision_is_counted_apart(state, case):
    fields, counted, timed = LIKE[case]
    pick = picked(revision=fields.get("revision", "0123abcdef"), history=0)
    pick.ahead = fields.get("ahead", False)
    told = record(state, pick=pick, tries=1)
    if "waited" in fields:
        told.waits(99.0)
        told.admitted(99.5)
    told.sent(100.0)
    told._attempts.tries = fields.get("tries", 1)
    told.answer_began(200, 100.5)
    told.served(Usage(100, 45, 9), 101.0)
    kind = "name", "true"
    assert state.metrics.revision_requests.values == {(GROUP, REVISION, counted, *kind, "ok"): 1}
    assert set(state.metrics.revision_first_token.values) == {(GROUP, REVISION, timed, *kind)}
    assert set(state.metrics.revision_own_tokens.values) == {(GROUP, REVISION, timed, *kind)}
    assert set(state.metrics.revision_shared_tokens.values) == {(GROUP, REVISION, timed, *kind)}
    cached = state.metrics.revision_cached.values
    assert set(cached) == {(GROUP, REVISION, "other" if "tries" in fields else counted, *kind)}
    (found,) = cached.values()
    assert found.sum == 0.9, "45 of the 50 tokens that repeat"


@pytest.mark.parametrize("kept", [False, True])
def test_a_request_during_which_series_are_dropped_counts_where_its_group_is_kept(state, kept):
    told = record(state, traceparent=f"00-{9:032x}-{5:016x}-01".encode())
    told.waits(now=100.0)
    wanted = {(GROUP,), (GROUP, REVISION), (GROUP, "0123abcd")} if kept else set()
    state.metrics.keep(("group",), wanted)
    state.metrics.keep(("group", "revision"), wanted)
    told.answer_began(200, now=100.5)
    told.served(Usage(100, 60, 11), now=101.5)
    times = state.metrics.duration, state.metrics.first_byte, state.metrics.revision_first_token
    assert [sum(sum(each.counts) for each in metric.values.values()) for metric in times] == [int(kept)] * 3
    assert {"request_duration_seconds", "time_to_first_byte_seconds"} & marked(state).keys() == (
        {"request_duration_seconds", "time_to_first_byte_seconds"} if kept else set()
    )
    record(state).answer_began(200, now=102.0)
    assert observed(state.metrics.first_byte, GROUP)[0] == 1 + kept
