from promptgroup_router.access.keyring import is_name
from promptgroup_router.base.caller_metrics import MOST_LABELS, OTHERS
from promptgroup_router.base.metrics import Metrics

GROUP = "chat/support"


def series(metrics):
    """Return the lines of the exposition that are of callers."""
    return {line for line in metrics.text().splitlines() if "caller=" in line}


def test_what_a_caller_has_used_is_told_as_series():
    metrics = Metrics()
    use = metrics.callers.of(GROUP, "team-a")
    use.answered(200)
    use.answered(200)
    use.answered(503)
    use.prompt_tokens += 100
    use.cached_tokens += 80
    use.answer_tokens += 7
    use.reused_tokens += 5
    use.unmetered += 1
    use.refused("rate_limit_exceeded")
    of = f'group="{GROUP}",caller="team-a"'
    assert series(metrics) == {
        f'promptgroup_router_caller_requests_total{{{of},code="200"}} 2',
        f'promptgroup_router_caller_requests_total{{{of},code="503"}} 1',
        f"promptgroup_router_caller_prompt_tokens_total{{{of}}} 100",
        f"promptgroup_router_caller_cached_tokens_total{{{of}}} 80",
        f"promptgroup_router_caller_answer_tokens_total{{{of}}} 7",
        f"promptgroup_router_caller_kept_answer_tokens_total{{{of}}} 5",
        f"promptgroup_router_caller_unmetered_answers_total{{{of}}} 1",
        f'promptgroup_router_limited_requests_total{{{of},code="rate_limit_exceeded"}} 1',
    }
    assert metrics.callers.of(GROUP, "team-a") is use


def test_a_caller_who_is_not_known_has_only_its_refusals_counted():
    metrics = Metrics()
    metrics.callers.of(GROUP, "").refused("tokens_exceeded")
    assert series(metrics) == {
        f'promptgroup_router_limited_requests_total{{group="{GROUP}",caller="",code="tokens_exceeded"}} 1'
    }


def test_a_bounded_number_of_callers_is_told_apart():
    metrics = Metrics()
    for number in range(10 * MOST_LABELS):
        metrics.callers.of(GROUP, f"caller-{number}").answered(200)
    metrics.callers.of("chat/other", "caller-0").answered(200)
    metrics.callers.tell()
    counted = metrics.callers.requests.values
    assert len(counted) == MOST_LABELS + 2
    assert counted[GROUP, OTHERS, "200"] == 9 * MOST_LABELS
    assert counted[GROUP, "caller-0", "200"] == counted["chat/other", "caller-0", "200"] == 1
    assert not is_name(OTHERS)


def test_the_series_of_a_group_that_is_gone_are_dropped():
    metrics = Metrics()
    for group in (GROUP, "chat/other"):
        metrics.callers.of(group, "team-a").answered(200)
    metrics.keep(("group",), {(GROUP,), ("chat/other", "0123abcd")})
    assert {line.partition('"')[2].partition('"')[0] for line in series(metrics)} == {GROUP}
