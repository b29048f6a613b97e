import json

import pytest

from promptgroup_router.decision.arrival import arrive
from promptgroup_router.decision.composition import router_state
from support.tables import SYSTEM, group, table
from support.wire import chat


@pytest.mark.parametrize(
    ("system", "path", "unmatched", "near"),
    [
        (SYSTEM, "/v1/chat/completions", 0, 0),
        ("A prompt of nobody's.", "/v1/chat/completions", 1, 0),
        (SYSTEM + " And more.", "/v1/chat/completions", 0, 0),
        (SYSTEM[:-1] + "!", "/v1/chat/completions", 1, 1),
        ("A prompt of nobody's.", "/tokenize", 0, 0),
    ],
    ids=["declared", "another", "behind it", "nearly declared", "nothing that is cached"],
)
def test_requests_that_no_group_declares_are_counted(system, path, unmatched, near):
    state = router_state()
    state.install(table(group()), "file", 0.0)
    body = json.dumps(chat(system=system)).encode()
    arrive(state, method=b"POST", path=path.encode(), headers={}, body=body, now=0.0)
    assert sum(state.metrics.unmatched.values.values()) == unmatched
    assert sum(state.metrics.near_miss.values.values()) == near


@pytest.mark.parametrize(("system", "kept"), [("A prompt of nobody's.", True), (SYSTEM[:-1] + "!", False)])
def test_samples_are_kept_of_what_is_no_declared_prompt_with_a_difference(system, kept):
    state = router_state(sample_bytes=100)
    state.install(table(group()), "file", 0.0)
    body = json.dumps(chat(system=system)).encode()
    arrive(state, method=b"POST", path=b"/v1/chat/completions", headers={}, body=body, now=0.0)
    (prefix,) = state.features.unmatched.prefixes.entries(0.0)
    assert (prefix.sample is not None) is kept
