import pytest

from promptgroup_contract.access import ANYBODY, Access
from promptgroup_contract.caller_rules import NO_RULES, CachedTokens, CallerRules, is_nameable
from promptgroup_router.decision.engine_headers import FROM_ENGINES, TO_ENGINES, from_engine, to_engine
from promptgroup_router.features.secret_prompt import SecretPrompt
from promptgroup_router.http11 import credentials
from promptgroup_router.http11.http1 import HOP_BY_HOP
from support.engineheaders import FROM_ENGINES as OF_ENGINES
from support.engineheaders import JUDGED

PASSING = Access(passes_credentials=True)
IDS = "x-sglext-return-input-ids"


def naming(*names: str, cached: CachedTokens = CachedTokens.EXACT) -> CallerRules:
    return CallerRules(headers=frozenset(names), cached_tokens=cached)


@pytest.mark.parametrize("name", JUDGED)
def test_an_engine_gets_what_was_judged_to_be_harmless_and_nothing_else(name):
    assert (name.encode() in to_engine(ANYBODY, NO_RULES)) is JUDGED[name].passes


def test_all_that_passes_was_judged():
    assert {name for name, judged in JUDGED.items() if judged.passes} == {each.decode() for each in TO_ENGINES}
    assert to_engine(ANYBODY, NO_RULES) == TO_ENGINES


@pytest.mark.parametrize("name", OF_ENGINES)
def test_no_client_gets_what_an_engine_says_of_itself(name):
    assert name.encode() not in from_engine(NO_RULES)


def test_no_field_of_one_connection_passes():
    for passed in (to_engine(PASSING, NO_RULES), from_engine(NO_RULES)):
        assert not passed & (HOP_BY_HOP | {b"host", b"expect"})


def test_credentials_pass_where_the_group_says_so():
    assert to_engine(PASSING, NO_RULES) >= credentials.HEADERS
    assert not credentials.HEADERS & to_engine(ANYBODY, NO_RULES)


def test_an_answer_that_is_rewritten_is_asked_for_in_no_coding():
    assert b"accept-encoding" in to_engine(ANYBODY, NO_RULES)
    assert b"accept-encoding" not in to_engine(ANYBODY, NO_RULES, rewritten=True)
    hidden = naming("accept-encoding", cached=CachedTokens.HIDDEN)
    assert b"accept-encoding" not in to_engine(ANYBODY, hidden)


def test_a_span_of_the_router_takes_the_place_of_the_clients():
    assert b"traceparent" not in to_engine(PASSING, naming("traceparent"), traced=True)
    assert b"tracestate" in to_engine(ANYBODY, NO_RULES, traced=True)


def test_what_a_group_names_passes_both_ways_and_nowhere_else():
    rules = naming("x-tenant", "endpoint-load-metrics")
    assert to_engine(ANYBODY, rules) == TO_ENGINES | {b"x-tenant", b"endpoint-load-metrics"}
    assert from_engine(rules) == FROM_ENGINES | {b"x-tenant", b"endpoint-load-metrics"}
    assert from_engine(rules, sized=False) == from_engine(rules) - {b"content-length"}
    assert b"x-tenant" not in to_engine(ANYBODY, NO_RULES) | from_engine(NO_RULES)


def test_a_field_of_answers_is_not_one_of_requests_because_a_group_names_it():
    assert b"content-length" not in to_engine(ANYBODY, naming("etag", "vary"))
    assert to_engine(ANYBODY, naming("etag", "vary")) == TO_ENGINES


def test_no_header_asks_for_the_tokens_of_a_secret_prompt():
    rules = naming(IDS, "x-tenant")
    assert IDS.encode() in to_engine(ANYBODY, rules)
    assert SecretPrompt().engine_fields(to_engine(ANYBODY, rules)) == TO_ENGINES | {b"x-tenant"}


@pytest.mark.parametrize(
    "name",
    [
        *sorted(each.decode() for each in HOP_BY_HOP | credentials.HEADERS),
        *("host", "content-length", "content-encoding", "expect", "via", "x-request-id", "set-cookie"),
        *("x-promptgroup", "x-promptgroup-warmup", "x-envoy-retry-on", "x-ratelimit-limit-requests"),
        *("x-gateway-destination-endpoint", "x-gateway-destination-endpoint-subset"),
        *("X-Tenant", "", "x tenant", "x-tenant\n", "x-ténant", "a:b", "-x", "x-", "a" * 65),
    ],
)
def test_what_no_group_can_name(name):
    assert not is_nameable(name)


@pytest.mark.parametrize("name", ["x-tenant", "a", "x_y.z", "a" * 64, "baggage", "x-data-parallel-rank"])
def test_what_a_group_can_name(name):
    assert is_nameable(name)
