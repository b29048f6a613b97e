import time
from dataclasses import replace
from math import inf

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_contract.access import Access, AccessType, Caller
from promptgroup_contract.caller_rules import NO_RULES, CallerRules
from promptgroup_contract.table import Engine, ModelAlias, Policy, Sleep, SlotState
from promptgroup_router.access.keyring import SecretRef
from promptgroup_router.apis import request
from promptgroup_router.apis.usage import Usage
from promptgroup_router.base.errors import ApiError
from promptgroup_router.decision.composition import router_state
from promptgroup_router.explain import explain, explain_with_table, parse_explain_request
from promptgroup_router.policy.policies import LEAST_CAP
from promptgroup_router.routing.admission_queue import NEW_SECONDS, WAIT_SECONDS
from support.keys import BY_KEY, KEY_A, KEY_A2, KEY_B
from support.routes import route
from support.tables import SYSTEM, group, revision, slot, table

ENGINE = Engine("one", kv_tokens=100_000, prefill_rate=10_000)
SERVED = table(group("support", revision(engine=ENGINE, tokens=2000)))


def chat(*said, system=SYSTEM, model="llama", **fields):
    roles = ("user", "assistant")
    messages = [{"role": "system", "content": system}] if system else []
    messages += [{"role": roles[number % 2], "content": text} for number, text in enumerate(said or ("Hi",))]
    return {"model": model, "messages": messages, **fields}


def question(body=None, headers=None, path="/v1/chat/completions"):
    text = body if isinstance(body, str) else orjson.dumps(body or chat()).decode()
    return parse_explain_request(orjson.dumps({"path": path, "headers": headers or {}, "body": text}))


def serving(served=SERVED):
    state = router_state()
    state.install(served, "file", 0.0)
    return state


def told(state, asked, now=0.0):
    return orjson.loads(explain(state, asked, now))


def place(state, asked, now=0.0):
    """Count the request as the router does; what it was counted on."""
    ask = asked.endpoint.parse(asked.body)
    balancer = state.balancer
    found = route(state.index, ask, asked.headers, locations=balancer.locations, tokens=state.tokens, now=now)
    pick = balancer.pick(found.candidates, found.demand, now)
    if pick is not None:
        balancer.placed.first_token(pick, now)
    return pick


# --- the question --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"{", "not JSON"),
        (b"[]", "body"),
        (b'{"body": {"model": "x"}}', "body"),
        (b'{"body": "{}", "headers": []}', "headers"),
        (b'{"body": "{}", "headers": {"a": 1}}', "headers"),
        (b'{"body": "{}", "path": "/v1/models"}', "/v1/chat/completions"),
    ],
)
def test_a_question_that_is_none_is_refused(data, word):
    with pytest.raises(ApiError, match=word) as refused:
        parse_explain_request(data)
    assert refused.value.status == 400


def test_headers_are_compared_in_lower_case_and_a_chat_is_meant():
    asked = parse_explain_request(b'{"body": "{}", "headers": {"X-Session-ID": "7"}}')
    assert (asked.endpoint.path, asked.headers) == (request.CHAT_PATH, {b"x-session-id": b"7"})


@pytest.mark.parametrize(
    ("body", "status"), [("{", 400), (chat(model="nobody"), 404), (chat(model="support"), 400), ({"model": 1}, 400)]
)
def test_what_the_router_would_refuse_is_told(body, status):
    found = told(serving(), question(body))
    assert found["refusal"]["status"] == status
    assert "choice" not in found


def test_a_group_without_a_replica_is_told_and_refused():
    nobody = revision(slots=(slot(0, SlotState.ABSENT),))
    found = told(serving(table(group("support", nobody))), question())
    assert (found["match"]["group"], found["refusal"]["code"]) == ("chat/support", "no_replica")
    assert "ring" not in found


@pytest.mark.parametrize(("sleep", "word"), [(Sleep(300, "2026-11-03T11:00:00Z", start=40), "wakes it"), (Sleep(), "")])
def test_what_becomes_of_a_request_for_a_group_that_sleeps(sleep, word):
    nobody = revision(slots=(slot(0, SlotState.ABSENT),))
    found = told(serving(table(group("support", nobody, sleep=sleep))), question())
    if not word:
        assert "scaled to zero" in found["refusal"]["message"]
        return
    assert found["refusal"] is None
    assert (found["choice"], found["candidates"]) == (None, [])
    assert [each["state"] for each in found["ring"]] == ["Absent"]
    assert word in found["why"]
    assert "300 s" in found["why"]


# --- group, session, revision --------------------------------------------------------------------------------


def test_by_content():
    found = told(serving(), question())
    assert found["match"] == {
        "how": "content",
        "group": "chat/support",
        "model": "llama",
        "alias": None,
        "nearMiss": None,
    }
    assert found["revision"]["why"] == "content"
    assert found["tokens"]["prefix"] == 2000
    assert found["refusal"] is None


def test_by_an_alias():
    (served,) = SERVED.groups
    state = serving(table(replace(served, aliases=(ModelAlias("gpt-4o"),))))
    for asked, alias in (("gpt-4o", "gpt-4o"), ("llama", None)):
        found = told(state, question(chat(model=asked)))["match"]
        assert (found["how"], found["model"], found["alias"]) == ("content", "llama", alias)
    named = told(state, question(chat(model="gpt-4o", system=""), {"x-promptgroup": "support"}))["match"]
    assert (named["how"], named["alias"]) == ("name", None)


def test_without_a_match_it_is_said_which_prompt_it_misses():
    found = told(serving(), question(chat(system=SYSTEM[:-1] + "!")))
    assert found["match"]["how"] == "none"
    assert found["match"]["nearMiss"] == {"group": "chat/support", "atByte": len(SYSTEM) - 1}
    assert found["revision"] is None
    assert len(found["ring"]) == 3


@pytest.mark.parametrize(
    ("headers", "fields", "source"),
    [
        ({"x-session-id": "7"}, {}, "header x-session-id"),
        ({}, {"conversation": {"id": "7"}}, "field conversation.id"),
        ({"authorization": "Bearer secret"}, {}, "header authorization"),
        ({}, {"prompt_cache_key": "7"}, "field prompt_cache_key"),
        ({}, {}, ""),
    ],
)
def test_the_session_names_its_source_and_not_what_stands_there(headers, fields, source):
    data = explain(serving(), question(chat(**fields), headers), 0.0)
    assert orjson.loads(data)["session"]["source"] == source
    assert b"secret" not in data


# --- the caller ----------------------------------------------------------------------------------------------

BY_HEADER = Access(AccessType.HEADER, header="x-user", sources=("10.0.0.0/8",))
ISOLATING = CallerRules(salted=frozenset(["chat"]))


def asking(access, callers=NO_RULES):
    state = serving(table(group("support", revision(slots=8, engine=ENGINE), access=access, callers=callers)))
    state.features.authenticator.keyring.learn_keys(SecretRef("chat", "keys"), {"alice": f"{KEY_A}\n{KEY_A2}".encode()})
    return state


@pytest.mark.parametrize("rules", [NO_RULES, ISOLATING], ids=["access", "isolation"])
@pytest.mark.parametrize(
    ("access", "headers"),
    [
        (BY_KEY, {"authorization": f"Bearer {KEY_A}"}),
        (BY_KEY, {"x-api-key": KEY_A2}),
        (BY_HEADER, {"x-user": "alice"}),
    ],
    ids=["key", "another key", "gateway"],
)
def test_the_caller_is_told_as_that_of_the_request_and_so_are_session_and_home(access, headers, rules):
    state = asking(access, rules)
    for number in range(10):
        asked = question(chat(f"q{number}"), headers)
        data = explain(state, asked, 0.0)
        found = orjson.loads(data)
        sent = route(
            state.index,
            asked.endpoint.parse(asked.body),
            asked.headers,
            locations=state.balancer.locations,
            tokens=state.tokens,
            now=0.0,
            identify=lambda *_: Caller("alice"),
            salts=state.features.salts,
        )
        assert found["caller"] == {"name": "alice"}
        assert found["session"]["key"] == f"{sent.session.key:016x}"
        assert found["choice"] == next(sent.candidates.order(sent.demand.session)).label
        assert not any(key.encode() in data for key in (KEY_A, KEY_A2))


@pytest.mark.parametrize(
    ("access", "headers", "code"),
    [
        (BY_KEY, {}, "missing_credential"),
        (BY_KEY, {"authorization": f"Bearer {KEY_B}"}, "invalid_api_key"),
        (replace(BY_KEY, callers=("bob",)), {"authorization": f"Bearer {KEY_A}"}, "not_allowed"),
        (replace(BY_KEY, secrets=("others",)), {"authorization": f"Bearer {KEY_B}"}, "access_not_available"),
        (BY_HEADER, {"x-user": "a b"}, "untrusted_sender"),
    ],
)
def test_a_caller_who_is_not_let_in_is_told_without_the_credential(access, headers, code, caplog):
    state = asking(access)
    data = explain(state, question(headers=headers), 0.0)
    assert orjson.loads(data)["refusal"]["code"] == code
    assert "choice" not in orjson.loads(data)
    assert not any(key in data.decode() + caplog.text for key in (KEY_A, KEY_B))


def test_nobody_is_told_where_nobody_is_asked_and_a_table_alone_knows_nobody():
    assert told(serving(), question(headers={"authorization": "Bearer x"}))["caller"] is None
    served = table(group("support", revision(), access=BY_KEY))
    found = orjson.loads(explain_with_table(served, question(headers={"authorization": f"Bearer {KEY_A}"})))
    assert (found["caller"], found["refusal"]) == ({"name": None}, None)


def test_a_revision_is_by_weight_or_the_one_that_the_session_began_with():
    old, new = revision("Old. " * 9, weight=10), revision("New. " * 9, weight=90)
    state = serving(table(group("support", old, new)))
    asked = question(chat(system="", model="support"), {"x-session-id": "7"})
    found = told(state, asked)
    assert found["revision"]["why"] == "weight"
    assert (found["revision"]["weight"], found["revision"]["weights"]) in {(10, 100), (90, 100)}
    place(state, asked)
    first = found["revision"]["fingerprint"]
    swapped = (replace(each, weight=0 if each.fingerprint == first else 100) for each in (old, new))
    state.install(table(group("support", *swapped)), "file", 1.0)
    after = told(state, asked, 1.0)
    assert (after["revision"]["why"], after["revision"]["fingerprint"]) == ("session", first)


# --- the replica ---------------------------------------------------------------------------------------------


def test_the_ring_has_slots_that_are_away_in_their_place():
    slots = (slot(0, SlotState.ABSENT), slot(1, SlotState.DRAINING), slot(2))
    found = told(serving(table(group("support", revision(slots=slots)))), question())
    assert sorted((each["replica"][-1], each["state"]) for each in found["ring"]) == [
        ("0", "Absent"),
        ("1", "Draining"),
        ("2", "Ready"),
    ]
    assert [each["replica"][-1] for each in found["candidates"]] == ["2"]
    assert (found["choice"][-1], found["why"]) == ("2", "no other replica can be sent to")


def test_a_new_session_goes_home_and_comes_back_to_where_it_was():
    state = serving()
    found = told(state, question())
    assert found["choice"] == found["ring"][0]["replica"]
    assert "this is the session's home" in found["why"]
    place(state, question())
    more = question(chat("Hi", "Yes?", "My order is late"))
    later = told(state, more, 3.0)
    assert later["session"]["last"] == {"replica": found["choice"], "tokens": 2001, "secondsAgo": 3.0}
    assert later["why"].startswith("the session was there last")
    assert later["candidates"][0]["cost"]["cachedTokens"] > 1900


def test_a_busy_home_is_left_for_a_cheaper_one():
    state = serving()
    home = told(state, question())["choice"]
    for number in range(40):
        place(state, question(chat("x" * 8000), {"x-session-id": str(number)}))
    busy = [each for each in state.balancer.members.replicas if each.endswith(home[-2:])]
    state.balancer.members.replicas[busy[0]].send(9.0, 1, 0.0, streamed=True)
    found = told(state, question())
    assert found["choice"] != home
    assert home in found["why"]
    assert "costs" in found["why"]


@pytest.mark.parametrize(
    ("turns", "seconds"), [(("x" * 320_000,), NEW_SECONDS), (("a", "b", "x" * 400_000), WAIT_SECONDS)]
)
def test_where_nobody_has_room_it_waits(turns, seconds):
    state = serving()
    for number in range(12):
        place(state, question(chat(f"{number}", "b", "y" * 120_000), {"x-session-id": f"other-{number}"}))
    found = told(state, question(chat(*turns)))
    assert found["choice"] is None
    assert not any(each["room"] for each in found["candidates"])
    assert f"{seconds:g} s" in found["why"]


def test_a_replica_that_cannot_be_reached_is_no_choice():
    state = serving()
    home = told(state, question())["choice"]
    member = next(each for each in state.balancer.members.replicas if each.endswith(home[-2:]))
    state.health.failed(member, "a", 0.0)
    found = told(state, question())
    assert found["choice"] != home
    assert [each["replica"] for each in found["candidates"] if each["ejected"]] == [home]
    assert found["candidates"][-1]["replica"] == home


def test_replicas_of_others_are_lent():
    mine, other = revision(engine=ENGINE, slots=1), revision("Another. " * 9, engine=ENGINE, slots=1)
    found = told(serving(table(group("support", mine), group("sales", other))), question())
    assert {each["replica"].split("/")[1]: each["lent"] for each in found["candidates"]} == {
        "support": False,
        "sales": True,
    }


@pytest.mark.parametrize("policy", [each for each in Policy if each is not Policy.EXPECTED_TTFT])
def test_simple_policies_say_what_they_count(policy):
    state = serving(table(group("support", revision(), policy=policy)))
    for number in range(LEAST_CAP):
        found = told(state, question(headers={"x-session-id": str(number)}))
        assert found["policy"] == policy.value
        assert all(each["cost"] is None for each in found["candidates"])
        assert found["choice"] == place(state, question(headers={"x-session-id": str(number)})).member.label


def test_by_prefix_hash_the_ring_is_that_of_the_prefix():
    state = serving(table(group("support", revision(), policy=Policy.PREFIX_HASH)))
    rings = [told(state, question(headers={"x-session-id": str(number)})) for number in range(8)]
    assert len({each["ring"][0]["replica"] for each in rings}) == 1
    assert {each["choice"] for each in rings} == {rings[0]["ring"][0]["replica"]}


def test_a_table_alone_explains_as_a_router_that_begins():
    assert explain_with_table(SERVED, question()) == explain(serving(), question(), 0.0)


requests = st.tuples(
    st.integers(0, 5),  # session
    st.sampled_from(("a", "b" * 4000, "c" * 60_000)),
    st.floats(0.0, 2.0),  # seconds since the one before
    st.sampled_from(("runs", "first", "ends", "fails")),
)


@pytest.mark.parametrize("policy", list(Policy))
@given(st.lists(requests, max_size=25))
def test_what_is_told_is_what_happens_and_telling_changes_nothing(policy, sequence):
    served = table(
        group("support", revision(engine=ENGINE, tokens=2000), policy=policy),
        group("sales", revision("Another. " * 9, engine=ENGINE, slots=2)),
    )
    asked_of, untouched = serving(served), serving(served)
    now = 0.0
    for session, text, seconds, then in sequence:
        now += seconds
        asked = question(chat(text), {"x-session-id": str(session)})
        found = told(asked_of, asked, now)
        assert told(asked_of, asked, now) == found
        picks = [place(state, asked, now) for state in (asked_of, untouched)]
        labels = [pick.member.label if pick is not None else None for pick in picks]
        assert labels == [found["choice"]] * 2
        if policy is Policy.EXPECTED_TTFT:
            costs = [each["cost"]["total"] for each in found["candidates"] if each["room"]]
            taken = [each["cost"]["total"] for each in found["candidates"] if each["replica"] == found["choice"]]
            assert taken == costs[:1]
        for state, pick in zip((asked_of, untouched), picks, strict=True):
            if pick is None or then == "runs":
                continue
            if then == "fails":
                state.health.failed(pick.member.id, "a", now)
                state.balancer.placed.release(pick, now)
                continue
            state.balancer.placed.first_token(pick, now)
            if then == "ends":
                state.balancer.placed.end(pick, Usage(3000, 2000, 100), now)


def test_a_canary_without_room_is_explained_by_the_revision_that_serves():
    canary = revision("You are new.", slots=1, engine=ENGINE, lends=False)
    state = serving(table(group("support", revision(engine=ENGINE), canary)))
    new = next(each for each in state.index.groups[0].revisions if not each.revision.lends)
    replica = state.balancer.members.replicas[new.candidates.ready[0].id]
    replica.live.enter(1000, 12, 0, 0.99 * ENGINE.kv_tokens, returned=True)
    found = told(state, question(chat(system="You are new.")))
    assert found["choice"] in {each["replica"] for each in found["candidates"] if each["lent"]}
    assert "the group's other revisions" in found["why"]


# --- what others have sent -----------------------------------------------------------------------------------

TELLING = [
    (BY_HEADER, {"x-user": "alice"}),
    (BY_KEY, {"authorization": f"Bearer {KEY_A}"}),
]


@pytest.mark.parametrize("policy", [Policy.EXPECTED_TTFT, Policy.PREFIX_HASH])
@pytest.mark.parametrize("rules", [NO_RULES, ISOLATING], ids=["access", "isolation"])
@pytest.mark.parametrize(("access", "headers"), TELLING, ids=["gateway", "key"])
@pytest.mark.parametrize(
    "naming",
    [({}, {}), ({"user": "alice"}, {}), ({}, {"x-session-id": "alice-7"}), ({"prompt_cache_key": "k"}, {})],
    ids=["text", "user", "header", "key"],
)
@pytest.mark.parametrize("system", [SYSTEM, "Nobody declares this. " * 40], ids=["declared", "undeclared"])
def test_a_guess_is_explained_alike_whether_or_not_somebody_sent_it(  # noqa: PLR0917 - a table
    policy, rules, access, headers, naming, system
):
    fields, named = naming

    def answers(sent):
        held = group("support", revision(slots=4, engine=ENGINE), access=access, callers=rules, policy=policy)
        state = serving(table(held))
        state.features.salts.rekey(bytes(32))
        keys = {"alice": KEY_A.encode(), "bob": KEY_B.encode()}
        state.features.authenticator.keyring.learn_keys(SecretRef("chat", "keys"), keys)
        secret = "Of alice, at length. " * 300  # as long as what requests may share beyond a declared prompt
        guesses = [chat(*said, system=system, **fields) for said in ((secret,), (secret, "Yes?", "More"))]
        asked = question(guesses[0], headers | named) if sent else question(chat("Another", system=system), headers)
        ask = asked.endpoint.parse(asked.body)
        found = route(
            state.index,
            ask,
            asked.headers,
            locations=state.balancer.locations,
            tokens=state.tokens,
            now=0.0,
            identify=lambda *_: Caller("alice"),
            salts=state.features.salts,
        )
        # not at its home, where a request that nobody has sent would go as well
        home = next(found.candidates.order(found.demand.session))
        pick = state.balancer.pick(found.candidates, found.demand, 0.0, [home.id])
        state.balancer.placed.first_token(pick, 0.1)
        state.balancer.placed.end(pick, Usage(2000, 10, 0), 0.5)
        bob = {"authorization": f"Bearer {KEY_B}"} if access is BY_KEY else {"x-user": "bob"}
        return [told(state, question(body, who | named), 1.0) for body in guesses for who in (headers, bob)]

    def plain(found):
        """Leave out what replicas have measured, which their pages of metrics tell."""
        for candidate in found["candidates"]:
            cost = candidate["cost"] or {}
            candidate["cost"] = [cost.get("cachedTokens"), cost.get("copiedTokens"), cost.get("margin")]
        return found | {"why": "", "candidates": sorted(found["candidates"], key=lambda shown: shown["replica"])}

    assert [plain(found) for found in answers(sent=True)] == [plain(found) for found in answers(sent=False)]


@pytest.mark.parametrize(
    "data",
    [
        b'{"body":"","x":[' + b",".join([b"[]"] * 70_000) + b"]}",
        b'{"body":"","x":[' + b",".join([b"1"] * 300_000) + b"]}",
        b'{"body":"","x":[' + b",".join([b'""'] * 500_000) + b"]}",
        b'{"body":"","x":' + b"[" * 70_000,
    ],
)
def test_a_document_of_too_much_structure_is_refused_before_it_is_parsed(data):
    with pytest.raises(ApiError) as refused:
        parse_explain_request(data)
    assert (refused.value.status, refused.value.code) == (400, "too_complex")


@pytest.mark.parametrize(
    "messages",
    [["[]"] * 5000, ['{"role":"user","content":"a, b, [c] {d}"}'] * 5000, ["1"] * 50_000],
)
def test_so_is_the_body_in_it_if_others_would_wait_for_it(messages):
    """A router reads such a request in a process of its own, and a document that is explained holds its loop."""
    body = f'{{"model":"llama","messages":[{",".join(messages)}],"padding":"{"x" * 65_536}"}}'
    question = parse_explain_request(orjson.dumps({"body": body}))
    with pytest.raises(ApiError, match="explain it by a table file") as refused:
        explain(serving(), question, 0.0)
    assert refused.value.code == "too_complex"
    assert b"too_complex" not in explain_with_table(table(), question)


def test_long_text_is_explained_whatever_characters_it_has():
    message = '{"role":"user","content":"' + "a, b, [c] {d} " * 50_000 + '"}'
    question = parse_explain_request(orjson.dumps({"body": f'{{"model":"llama","messages":[{message}]}}'}))
    assert orjson.loads(explain(serving(), question, 0.0))["refusal"] is None


def test_headers_of_more_bytes_than_a_request_may_have_are_refused():
    with pytest.raises(ApiError, match="65536 bytes"):
        parse_explain_request(orjson.dumps({"body": "{}", "headers": {"a": "b" * 70_000}}))


def test_a_group_with_many_replicas_is_explained_in_time_that_grows_as_they_do():
    def cost(slots):
        state = serving(table(group("support", revision(slots=slots))))
        asked, least = question(), inf
        for _ in range(3):
            began = time.thread_time()
            explain(state, asked, 0.0)
            least = min(least, time.thread_time() - began)
        return least

    few, many = cost(300), cost(2400)
    assert many < 24 * few  # eight times as many take 8 times as long, and 64 times if each is compared with all


def test_each_rank_of_an_engine_is_a_place_and_an_api_that_names_none_expects_nothing():
    made = revision(
        slots=(slot(0, ranks=2), slot(1, SlotState.ABSENT, ranks=2)),
        engine=replace(ENGINE, unranked=frozenset(("responses",))),
        tokens=2000,
    )
    state = serving(table(group("support", made)))
    found = told(state, question())
    short = made.fingerprint[:8]
    assert {each["replica"]: each["state"] for each in found["ring"]} == {
        f"chat/support/{short}/{slot_}.{rank}": state_
        for slot_, state_ in ((0, "Ready"), (1, "Absent"))
        for rank in (0, 1)
    }
    assert found["choice"] in {f"chat/support/{short}/0.{rank}" for rank in (0, 1)}
    assert "rank" not in found["why"]
    asked = {"model": "llama", "instructions": SYSTEM, "input": "Hi"}
    other = told(state, question(asked, path="/v1/responses"))
    assert other["why"].endswith("its engine chooses the rank itself for this API: nothing counts as cached")
    assert other["tokens"]["history"] == 0
    place(state, question(asked, path="/v1/responses", headers={"x-session-id": "s"}))
    assert told(state, question(asked, path="/v1/responses", headers={"x-session-id": "s"}))["session"]["last"] is None
