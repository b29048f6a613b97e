import json
from collections import Counter
from dataclasses import replace
from math import ceil
from pathlib import Path

import orjson
import pytest
import xxhash

from promptgroup_contract.fingerprint import canonical_tools
from promptgroup_contract.table import Engine, ModelAlias, SlotState
from promptgroup_router.apis.endpoints import ENDPOINTS
from promptgroup_router.apis.request import ApiKind, parse
from promptgroup_router.apis.tokens import Tokens
from promptgroup_router.base.errors import ApiError
from promptgroup_router.features.near_miss import UnmatchedPrompt
from promptgroup_router.policy.gossip import LAST_TURN
from promptgroup_router.policy.session_locations import QUIET_SECONDS, Placement, SessionLocations
from promptgroup_router.rings.building import build_index
from promptgroup_router.routing.match import MatchedBy
from promptgroup_router.routing.points import feature_of
from promptgroup_router.routing.route import UNMATCHED, refuse_empty, revision_by_weight, share_of
from support.routes import route
from support.tables import SYSTEM, group, revision, slot, table


def ask(*messages, model="llama", **fields):
    listed = [{"role": role, "content": content} for role, content in messages or [("user", "Hi")]]
    return parse(ApiKind.CHAT, orjson.dumps({"model": model, "messages": listed} | fields))


def text(prompt, model="llama"):
    return parse(ApiKind.TEXT, orjson.dumps({"model": model, "prompt": prompt}))


def routed(view, request, headers=None, *, locations=None, tokens=None, now=0.0):
    return route(
        view, request, headers or {}, locations=locations or SessionLocations(), tokens=tokens or Tokens(), now=now
    )


def leading(found):
    return feature_of(found.features, UnmatchedPrompt).leading


VIEW = build_index(table(group("support", session_header="x-mine")))


LONG = "x" * 300


def test_by_content_the_body_stays_and_the_session_is_the_start_of_the_conversation():
    request = ask(("system", SYSTEM), ("user", LONG))
    first = routed(VIEW, request)
    later = routed(VIEW, ask(("system", SYSTEM), ("user", LONG), ("assistant", "Yes?"), ("user", "More")))
    other = routed(VIEW, ask(("system", SYSTEM), ("user", "y" + LONG)))
    assert (first.matched_by, first.group, first.model, first.rewrite.body) == (
        MatchedBy.CONTENT,
        "chat/support",
        "llama",
        request.raw,
    )
    assert first.demand.session == later.demand.session != other.demand.session
    assert first.demand.origin == later.demand.origin == 0
    assert first.demand.prefix == later.demand.prefix == other.demand.prefix


def test_a_session_whose_key_became_another_knows_its_first():
    first = routed(VIEW, ask(("system", SYSTEM), ("user", "Hi"))).demand
    later = routed(VIEW, ask(("system", SYSTEM), ("user", "Hi"), ("assistant", "Yes?"), ("user", "More"))).demand
    assert (first.origin, later.origin) == (0, first.session)
    assert later.session != first.session


def test_by_name_the_prompt_is_put_in_front():
    found = routed(VIEW, ask(model="support"))
    assert (found.matched_by, found.group, found.model) == (MatchedBy.NAME, "chat/support", "llama")
    assert json.loads(found.rewrite.body)["messages"][0] == {"role": "system", "content": SYSTEM}


def test_a_request_waits_for_the_replicas_of_its_revision():
    found = routed(VIEW, ask(("system", SYSTEM), ("user", "Hi")))
    assert found.revision
    assert share_of(found).place == (found.group, found.revision)


def test_the_groups_header_names_its_sessions():
    def session(headers=None, **fields):
        return routed(VIEW, ask(("system", SYSTEM), ("user", "Hi"), **fields), headers).demand.session

    header = session({b"x-mine": b"s"}, prompt_cache_key="k")
    assert header == session({b"x-mine": b"s"})
    assert header != session({b"x-session-id": b"s"})
    assert session({b"x-mine": b""}, prompt_cache_key="k") == session(prompt_cache_key="k")
    assert session(prompt_cache_key="k") != session()


def test_sessions_of_two_groups_have_two_keys():
    view = build_index(table(group("a", revision("A")), group("b", revision("B"))))
    headers = {b"x-session-id": b"s"}
    found = {
        routed(view, request, headers).demand.session
        for request in (ask(("system", "A"), ("user", "Hi")), ask(model="b"), ask(("system", "C"), ("user", "Hi")))
    }
    assert len(found) == 3
    assert routed(view, ask(model="a"), headers).demand.session in found


def test_the_session_of_a_text_prompt_is_what_follows_the_declared_text():
    one, other = routed(VIEW, text(SYSTEM + " a" + "x" * 2000)), routed(VIEW, text(SYSTEM + " b" + "x" * 2000))
    longer = routed(VIEW, text(SYSTEM + " a" + "x" * 3000))
    assert one.demand.session == longer.demand.session != other.demand.session


# --- What it demands -----------------------------------------------------------------------------------------

COUNTED = build_index(table(group("support", revision(tokens=96))))
TOOLS = '[{"name":"find"}]'


def lengths(found):
    demand = found.demand
    return demand.prompt, demand.tier1, demand.history, demand.turn


TURNS = (("user", "u" * 400), ("assistant", "a" * 800), ("user", "v" * 40))


def test_by_content_tier_1_is_counted_and_the_rest_estimated():
    first, later = ask(("system", SYSTEM), TURNS[0]), ask(("system", SYSTEM), *TURNS)
    assert lengths(routed(COUNTED, first)) == (196, 96, 0, 2)
    assert lengths(routed(COUNTED, later)) == (406, 96, 396, 4)
    found = routed(COUNTED, later)
    assert (found.demand.estimated_bytes, found.demand.counted) == (1240, 96)


def test_by_name_the_same_is_demanded_as_by_content():
    for view in (VIEW, COUNTED):
        content, name = routed(view, ask(("system", SYSTEM), *TURNS)), routed(view, ask(*TURNS, model="support"))
        assert lengths(name)[:3] == lengths(content)[:3]
        assert (name.demand.estimated_bytes, name.demand.counted) == (
            content.demand.estimated_bytes,
            content.demand.counted,
        )


def test_tier_1_that_no_engine_has_counted_is_estimated_with_its_tools():
    view = build_index(table(group("support", revision("S" * 400, tools=TOOLS))))
    of_tools = ceil((400 + len(TOOLS)) * 0.25)
    content = routed(view, ask(("system", "S" * 400), *TURNS, tools=orjson.Fragment(TOOLS)))
    name = routed(view, ask(*TURNS, model="support"))
    same = routed(view, ask(*TURNS, model="support", tools=orjson.Fragment(TOOLS)))
    assert lengths(content) == (of_tools + 310, of_tools, of_tools + 300, 4)
    assert lengths(name) == lengths(same) == (of_tools + 310, of_tools, of_tools + 300, 3)
    assert (
        content.demand.estimated_bytes
        == name.demand.estimated_bytes
        == same.demand.estimated_bytes
        == 400 + len(TOOLS) + 1240
    )


EXAMPLES = [("user", "e" * 100), ("assistant", "f" * 300)]
WITH_EXAMPLES = build_index(table(group("support", revision(tokens=196, messages=EXAMPLES))))


def test_declared_messages_are_tier_1_and_no_earlier_turn():
    first = routed(WITH_EXAMPLES, ask(("system", SYSTEM), *EXAMPLES, TURNS[0]))
    later = routed(WITH_EXAMPLES, ask(("system", SYSTEM), *EXAMPLES, *TURNS))
    assert (first.matched_by, lengths(first)) == (MatchedBy.CONTENT, (296, 196, 0, 2))
    assert lengths(later) == (506, 196, 496, 4)
    without = routed(WITH_EXAMPLES, ask(("system", SYSTEM), TURNS[0]))
    assert without.matched_by is MatchedBy.NONE


def test_declared_messages_tell_no_sessions_apart():
    def session(text, view=WITH_EXAMPLES, *messages):
        return routed(view, ask(("system", SYSTEM), *EXAMPLES, ("user", text), *messages)).demand.session

    assert session(LONG) != session("y" * 300)
    assert session(LONG) == session(LONG, WITH_EXAMPLES, ("assistant", "Yes?"), ("user", "More"))
    name = routed(WITH_EXAMPLES, ask(("user", LONG), model="support")).demand.session
    assert session(LONG) == name


def test_by_name_declared_messages_are_put_in_front():
    found = routed(WITH_EXAMPLES, ask(TURNS[0], model="support"))
    assert [each["content"] for each in json.loads(found.rewrite.body)["messages"]] == [
        SYSTEM, EXAMPLES[0][1], EXAMPLES[1][1], TURNS[0][1],
    ]  # fmt: skip
    assert lengths(found)[:3] == (296, 196, 0)


def test_a_system_text_that_goes_on_after_the_declared_one_is_no_tier_1():
    assert lengths(routed(COUNTED, ask(("system", SYSTEM + "d" * 400), TURNS[0])))[:2] == (296, 96)


def test_what_engines_say_corrects_the_estimate():
    tokens = Tokens()
    for _ in range(50):
        tokens.learn("llama", 10_000, 5000)
    found = routed(COUNTED, ask(*TURNS, model="support"), tokens=tokens)
    assert found.demand.prompt == pytest.approx(96 + 620, rel=0.02)


def test_without_a_group_the_system_text_is_tier_1():
    view = build_index(table(group("support")))
    assert lengths(routed(view, ask(("system", "x" * 4000), *TURNS))) == (1310, 1000, 1300, 4)
    found = routed(view, ask(("system", "x" * 4000), *TURNS))
    assert (found.demand.estimated_bytes, found.demand.counted) == (5240, 0)


def test_the_length_of_a_text_is_estimated_that_of_tokens_is_known():
    view = build_index(table(group("support")))
    assert lengths(routed(view, text("x" * 8000))) == (2000, 512, 0, 1)
    assert lengths(routed(view, text(list(range(2000))))) == (2000, 512, 0, 1)
    assert lengths(routed(view, text([1, 2, 3]))) == (3, 3, 0, 1)
    assert lengths(routed(COUNTED, text(SYSTEM + "x" * 400))) == (196, 96, 0, 1)
    assert routed(view, text([1, 2, 3])).demand.estimated_bytes == 0


def test_a_prompt_with_an_image_teaches_nothing():
    image = {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}}
    parts = [{"type": "text", "text": "What is it?"}, image]
    for view in (VIEW, COUNTED):
        for request in (
            ask(("system", SYSTEM), ("user", parts)),
            ask(("user", parts), model="support"),
            ask(("user", parts)),
        ):
            assert routed(view, request).demand.estimated_bytes == 0


def test_turns_are_bounded_and_streams_are_told():
    assert routed(VIEW, ask(*[("user", "")] * (LAST_TURN + 1))).demand.turn == LAST_TURN
    for model in ("llama", "support"):
        assert [routed(VIEW, ask(model=model, stream=each)).demand.streamed for each in (True, False)] == [True, False]


# --- Without a group -----------------------------------------------------------------------------------------


def test_without_a_match_the_prompt_is_the_prefix_and_its_start_is_listed():
    view = build_index(table(group("a", revision("A")), group("b", revision("B"))))
    found = routed(view, ask(("system", "x" * 5000), ("user", LONG)))
    same = routed(view, ask(("system", "x" * 5000), ("user", "y" + LONG)))
    like = routed(view, ask(("system", "x" * 4000), ("user", LONG)))
    assert (found.matched_by, found.group, found.model) == (MatchedBy.NONE, UNMATCHED, "llama")
    assert leading(found).length == 5000
    assert leading(found).hash == leading(same).hash == leading(like).hash
    assert found.demand.prefix == same.demand.prefix != like.demand.prefix
    assert found.demand.session != same.demand.session
    assert len(found.candidates.ready) == 6


def test_only_a_prompt_that_matches_a_group_counts_as_declared():
    view = build_index(table(group("support")))
    assert routed(view, ask(("system", SYSTEM), ("user", "Hi"))).demand.declared
    assert routed(view, ask(("user", "Hi"), model="support")).demand.declared
    assert not routed(view, ask(("system", "Another prompt."), ("user", "Hi"))).demand.declared


def test_without_a_match_tools_are_a_part_of_the_prefix():
    view = build_index(table(group("a", revision("A"))))
    one, other = (routed(view, ask(tools=[{"name": name}])) for name in ("find", "sum"))
    assert one.demand.prefix != other.demand.prefix
    assert leading(one) == leading(other)


def test_without_instructions_the_start_of_the_conversation_is_listed():
    view = build_index(table(group("a", revision("A"))))
    one, same, other = (leading(routed(view, ask(("user", words)))) for words in ("Hi", "Hi", "Ho"))
    later = leading(routed(view, ask(("user", "Hi"), ("assistant", "Yes?"), ("user", "More"))))
    assert one == same == later != other
    texts = [routed(view, text(prompt)).demand.prefix for prompt in ("a", "b", [1, 2], [1, 3])]
    assert len(set(texts)) == 4
    assert len({routed(view, text(prompt)).demand.session for prompt in ("a", "b", [1, 2], [1, 3])}) == 4


def refused(view, request, headers=None):
    with pytest.raises(ApiError) as caught:
        refuse_empty(routed(view, request, headers))
    return caught.value.status, caught.value.code


def test_without_a_ready_replica_the_answer_is_503():
    absent = revision(slots=(slot(0, SlotState.ABSENT), slot(1, SlotState.DRAINING)))
    view = build_index(table(group("support", absent)))
    for request in (ask(("system", SYSTEM), ("user", "Hi")), ask(model="support"), ask()):
        assert refused(view, request) == (503, "no_replica")
    assert refused(build_index(table(replace(group("support"), revisions=()))), ask(model="support")) == (
        503,
        "no_replica",
    )


def test_by_name_with_a_text_that_is_not_known_yet_is_503_by_content_it_is_served():
    view = build_index(table(group("support", revision(known=False))))
    assert refused(view, ask(model="support")) == (503, "prompt_not_available")
    assert routed(view, ask(("system", SYSTEM), ("user", "Hi"))).matched_by is MatchedBy.CONTENT


# --- Revisions by name ---------------------------------------------------------------------------------------

OLD, NEW = revision("old", weight=75), revision("new", weight=25)
CANARY = build_index(table(group("support", OLD, NEW)))


def arm(view, session, locations=None, now=0.0):
    found = routed(view, ask(model="support"), {b"x-session-id": session.encode()}, locations=locations, now=now)
    return found.candidates.id.split("/")[2]


def test_new_sessions_are_split_by_weight_and_routers_agree():
    arms = [arm(CANARY, f"session-{number}") for number in range(1000)]
    share = Counter(arms)[NEW.fingerprint] / 1000
    assert 0.2 < share < 0.3
    turned = build_index(table(group("support", NEW, OLD)))
    assert arms == [arm(turned, f"session-{number}") for number in range(1000)]


def placed(view, request, of, headers=None):
    """Places after this request was sent to a replica of this revision."""
    prefix = next(each.prefix for each in view.names["support"].revisions if each.revision is of)
    demand, locations = routed(view, request, headers).demand, SessionLocations()
    locations.put(demand.session, Placement("a member", prefix, demand.turn, demand.prompt, 0.0, 0.0))
    return locations


def test_a_running_session_stays_on_its_revision():
    old, new = replace(OLD, weight=0), NEW
    view = build_index(table(group("support", old, new)))
    locations = placed(view, ask(model="support"), old, {b"x-session-id": b"s"})
    assert arm(view, "s", locations, 10.0) == OLD.fingerprint
    assert arm(view, "other", locations, 10.0) == NEW.fingerprint
    assert arm(view, "s", locations, QUIET_SECONDS + 1) == NEW.fingerprint


def test_a_session_leaves_a_revision_that_has_no_replica_left():
    gone = replace(OLD, slots=(slot(0, SlotState.ABSENT),))
    view = build_index(table(group("support", gone, NEW)))
    locations = placed(view, ask(model="support"), gone, {b"x-session-id": b"s"})
    assert arm(view, "s", locations, 10.0) == NEW.fingerprint


ENGINE = Engine(settings="the same")


@pytest.mark.parametrize("weight", [0, 75])
def test_sessions_leave_a_revision_whose_replicas_drain_rather_than_be_cold_on_those_of_another(weight):
    draining = tuple(slot(index, SlotState.DRAINING) for index in range(2))
    retiring = replace(OLD, weight=weight, slots=draining, engine=ENGINE)
    view = build_index(table(group("support", retiring, replace(NEW, engine=ENGINE))))
    assert view.names["support"].revisions[0].candidates.lent, "the new revision lends its replicas"
    locations = placed(view, ask(model="support"), retiring, {b"x-session-id": b"s"})
    assert arm(view, "s", locations, 10.0) == NEW.fingerprint
    assert {arm(view, f"session-{number}") for number in range(50)} == {NEW.fingerprint}
    by_content = routed(view, ask(("system", "old"), ("user", "Hi")))
    assert by_content.candidates.lent, "clients that send the old prompt are served all the same"


def test_a_revision_that_borrows_serves_sessions_by_name_where_no_other_has_a_weight():
    lost = replace(NEW, slots=(slot(0, SlotState.ABSENT),), engine=ENGINE)
    view = build_index(table(group("support", replace(OLD, weight=0, engine=ENGINE), lost)))
    locations = placed(view, ask(model="support"), lost, {b"x-session-id": b"s"})
    assert arm(view, "s", locations, 10.0) == NEW.fingerprint
    assert arm(view, "new") == NEW.fingerprint


def test_a_session_stays_on_its_arm_when_its_key_becomes_another():
    for number in range(50):
        first = routed(CANARY, ask(("user", f"Hi {number}"), model="support"))
        later = ask(("user", f"Hi {number}"), ("assistant", "Yes?"), ("user", "More"), model="support")
        assert routed(CANARY, later).candidates.id == first.candidates.id


def test_the_record_of_a_first_turn_serves_the_second_not_another_first():
    old = replace(OLD, weight=0)
    view = build_index(table(group("support", old, NEW)))
    first = ask(("user", "Hi"), model="support")
    later = ask(("user", "Hi"), ("assistant", "Yes?"), ("user", "More"), model="support")
    locations = placed(view, first, old)
    assert routed(view, later, locations=locations).candidates.id.endswith(old.fingerprint)
    assert routed(view, first, locations=locations).candidates.id.endswith(NEW.fingerprint)


def test_a_revision_without_weight_gets_no_new_session():
    assert refused(build_index(table(group("support", replace(OLD, weight=0)))), ask(model="support")) == (
        503,
        "no_replica",
    )


# --- Revisions by weight ----------------------------------------------------------------------------------------

WEIGHTS = json.loads((Path(__file__).parents[3] / "golden" / "weights.json").read_text())


def test_a_session_has_the_same_revision_in_every_router_and_version():
    assert len(WEIGHTS) > 50
    found = [revision_by_weight(int(each["key"], 16), each["weights"]) for each in WEIGHTS]
    assert found == [each["revision"] for each in WEIGHTS]


@pytest.mark.parametrize("weights", [{"a": 1}, {"a": 90, "b": 10}, {"a": 1, "b": 1, "c": 2}, {"a": 0, "b": 5}])
def test_sessions_are_shared_by_weight(weights):
    keys = [xxhash.xxh3_64_intdigest(number.to_bytes(4, "little")) for number in range(10_000)]
    counts = Counter(revision_by_weight(key, weights) for key in keys)
    for name, weight in weights.items():
        assert counts[name] / len(keys) == pytest.approx(weight / sum(weights.values()), abs=0.015)


# --- Aliases --------------------------------------------------------------------------------------------------------

ALIASED = build_index(table(group("support", aliases=(ModelAlias("gpt-4o"),)), group("other", revision("Else"))))
FUNCTIONS = [{"type": "function", "function": {"name": "f", "description": "d"}}]

ASKED = {
    "chat": (
        b"/v1/chat/completions",
        {"messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Hi"}]},
    ),
    "chat of no group": (b"/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "stream": True}),
    "tools": (b"/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "tools": FUNCTIONS, "rid": 1}),
    "text": (b"/v1/completions", {"prompt": f"{SYSTEM} Hi"}),
    "messages": (b"/v1/messages", {"system": SYSTEM, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}),
    "count": (b"/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "Hi"}]}),
    "responses": (b"/v1/responses", {"instructions": SYSTEM, "input": "Hi"}),
    "embeddings": (b"/v1/embeddings", {"input": ["Once"]}),
    "rerank": (b"/v1/rerank", {"query": "a", "documents": ["b"]}),
    "tokens": (b"/tokenize", {"messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Hi"}]}),
}  # fmt: skip


def asked(path, fields, model):
    return ENDPOINTS[path].parse(orjson.dumps({"z": 1, "model": model, **fields}))


@pytest.mark.parametrize("case", ASKED)
def test_a_request_by_an_alias_is_one_by_the_model_and_engines_get_the_models_name(case):
    path, fields = ASKED[case]
    by_model, by_alias = (
        route(
            ALIASED,
            asked(path, fields, model),
            {},
            locations=SessionLocations(),
            tokens=Tokens(),
            now=0.0,
            cached=ENDPOINTS[path].cached,
        )
        for model in ("llama", "gpt-4o")
    )
    assert json.loads(by_alias.rewrite.body) == json.loads(by_model.rewrite.body)
    assert json.loads(by_alias.rewrite.body)["model"] == "llama"
    for name in ("matched_by", "group", "model", "candidates", "session", "revision"):
        assert getattr(by_alias, name) == getattr(by_model, name), name
    if ENDPOINTS[path].cached:
        assert by_alias.demand == by_model.demand
    assert (by_model.rewrite.model, by_alias.rewrite.model) == ("", "llama")


def test_tools_of_a_request_by_an_alias_are_put_in_order():
    view = build_index(table(group("a", revision(tools=canonical_tools(FUNCTIONS)), aliases=(ModelAlias("gpt"),))))
    chat = [("system", SYSTEM), ("user", "Hi")]
    by_model, by_alias = (routed(view, ask(*chat, model=model, tools=FUNCTIONS)) for model in ("llama", "gpt"))
    assert by_alias.group == "chat/a"
    assert by_alias.rewrite.body == by_model.rewrite.body != ask(*chat, tools=FUNCTIONS).raw


def test_what_engines_say_of_a_model_holds_under_its_alias():
    tokens = Tokens()
    tokens.learn("llama", 100_000, 50_000)
    for system in (SYSTEM, "Nobody declares this."):
        demands = [
            routed(ALIASED, ask(("system", system), ("user", LONG), model=model), tokens=tokens).demand
            for model in ("llama", "gpt-4o")
        ]
        assert demands[0] == demands[1]


def test_a_group_that_is_named_by_a_header_gets_its_model_whatever_the_body_names():
    found = routed(ALIASED, ask(model="gpt-4o"), {b"x-promptgroup": b"other"})
    assert (found.group, json.loads(found.rewrite.body)["model"]) == ("chat/other", "llama")


RULES = "You are the assistant of a shop, and follow its rules. " * 100


@pytest.mark.parametrize("count", [0, 40])
@pytest.mark.parametrize("filled", range(0, 1024, 64))
def test_sessions_of_a_declared_prompt_share_nothing_by_it(count, filled):
    system = RULES + "." * filled
    examples = [(role, "Yes.") for _ in range(count // 2) for role in ("user", "assistant")]
    view = build_index(table(group("support", revision(system, messages=examples))))

    def marks(question):
        found = routed(view, ask(("system", system), *examples, ("user", question)))
        assert found.matched_by is MatchedBy.CONTENT
        return set(found.demand.marks)

    assert marks("Where is my parcel?") == set()
    assert not marks("First. " * 400) & marks("Second. " * 400)
    document = "A document that many ask about. " * 100
    assert marks(document + "Who wrote it?") & marks(document + "When?")


# --- LoRA adapters -----------------------------------------------------------------------------------------


def adapted(version, weight, slots=2, **fields):
    """A revision of the adapter `tone`, with the prompt of all of them."""
    plain = revision(SYSTEM, slots)
    prompt = replace(plain.prompt, adapter=f"v{version}")
    return replace(
        plain,
        fingerprint=prompt.fingerprint,
        prompt=prompt,
        text_fingerprint=plain.fingerprint,
        served_model=f"tone-{version}",
        weight=weight,
        **fields,
    )


def tone(*revisions, name="support", **fields):
    return group(name, *revisions, model="tone", base_model="llama", **fields)


def sent_model(found):
    return orjson.loads(found.rewrite.body)["model"]


def test_engines_are_asked_for_the_adapter_of_the_revision():
    view = build_index(table(tone(adapted(1, 100))))
    by_content = routed(view, ask(("system", SYSTEM), ("user", "Hi"), model="tone"))
    by_name = routed(view, ask(("user", "Hi"), model="support"))
    unmatched = routed(view, ask(("system", "Another."), ("user", "Hi"), model="tone"))
    matches = [each.matched_by for each in (by_content, by_name, unmatched)]
    assert matches == [MatchedBy.CONTENT, MatchedBy.NAME, MatchedBy.NONE]
    for found in (by_content, by_name, unmatched):
        assert (sent_model(found), found.model) == ("tone-1", "tone")
        assert len(found.candidates.members) == 2


def test_a_prompt_beside_the_groups_is_told_the_model_that_clients_know():
    view = build_index(table(tone(adapted(1, 100))))
    with pytest.raises(ApiError, match=r"or ask for 'tone'$"):
        routed(view, ask(("system", "Mine"), ("user", "Hi"), model="support"))


ADAPTED_APIS = frozenset(("chat", "text", "messages"))


@pytest.mark.parametrize("case", ASKED)
def test_an_api_that_applies_no_adapter_is_refused(case):
    view = build_index(table(tone(adapted(1, 100, served_apis=ADAPTED_APIS))))
    request = asked(*ASKED[case], "tone")
    if request.kind.value in ADAPTED_APIS:
        assert sent_model(routed(view, request)) == "tone-1"
        return
    with pytest.raises(ApiError) as raised:
        routed(view, request)
    assert (raised.value.status, raised.value.param, raised.value.code) == (400, "model", "adapter_not_supported")
    assert "use one of chat, messages, text" in str(raised.value)


def test_a_request_that_names_the_group_is_refused_there_too():
    view = build_index(table(tone(adapted(1, 100, served_apis=ADAPTED_APIS))))
    with pytest.raises(ApiError) as raised:
        routed(view, asked(b"/v1/responses", {"input": "Hi"}, "support"))
    assert raised.value.code == "adapter_not_supported"
    assert sent_model(routed(view, ask(("user", "Hi"), model="support"))) == "tone-1"


def test_the_model_itself_is_not_served_by_the_engines_of_an_adapter():
    view = build_index(table(tone(adapted(1, 100)), group("base")))
    found = routed(view, ask(("system", SYSTEM), ("user", "Hi")))
    assert found.group == "chat/base"
    with pytest.raises(ApiError) as raised:
        routed(build_index(table(tone(adapted(1, 100)))), ask(("system", SYSTEM), ("user", "Hi")))
    assert raised.value.status == 404


def test_revisions_with_one_prompt_share_the_sessions_that_bring_it():
    one, two = adapted(1, 70), adapted(2, 30)
    view = build_index(table(tone(one, two)))
    counts = Counter()
    for number in range(1000):
        found = routed(view, ask(("system", SYSTEM), ("user", f"Question {number}"), model="tone"))
        short = {each.served_model: each.fingerprint[:8] for each in (one, two)}
        assert found.revision == short[sent_model(found)]
        assert {member.fingerprint[:8] for member in found.candidates.members} == {found.revision}
        counts[sent_model(found)] += 1
    assert 640 < counts["tone-1"] < 760


def test_a_session_stays_with_its_adapter_while_weights_change():
    one, two = adapted(1, 100), adapted(2, 0)
    view, locations = build_index(table(tone(one, two))), SessionLocations()
    first = routed(view, ask(("system", SYSTEM), ("user", "Hi"), model="tone"), locations=locations)
    member, demand = first.candidates.ready[0], first.demand
    locations.put(demand.session, Placement(member.id, demand.prefix, demand.turn, demand.prompt, 0.0, 0.0))
    released = build_index(table(tone(replace(one, weight=0), replace(two, weight=100))))
    turns = (("system", SYSTEM), ("user", "Hi"), ("assistant", "Yes?"), ("user", "More"))
    assert sent_model(routed(released, ask(*turns, model="tone"), locations=locations)) == "tone-1"
    assert sent_model(routed(released, ask(*turns, model="tone"))) == "tone-2"


def test_a_prompt_that_all_its_revisions_have_left_goes_to_one_that_is_there():
    view = build_index(table(tone(adapted(1, 0, slots=0), adapted(2, 0))))
    assert sent_model(routed(view, ask(("system", SYSTEM), ("user", "Hi"), model="tone"))) == "tone-2"


def test_undeclared_prompts_get_one_adapter_alone():
    """Two groups with one name for two adapters: the older one keeps it."""
    old, new = adapted(1, 100), replace(adapted(2, 100), slots=(slot(0, address="10.1.0.1:8000"),))
    young = tone(new, name="later", created="2026-11-04T11:00:00Z")
    found = routed(build_index(table(tone(old), young)), ask(("user", "Hi"), model="tone"))
    assert sent_model(found) == "tone-1"
    assert {member.group for member in found.candidates.members} == {"chat/support"}


def test_an_adapter_borrows_no_replica():
    engine = Engine("same")
    first, second = adapted(1, 100, engine=engine), replace(adapted(2, 100, engine=engine), slots=())
    view = build_index(table(tone(first, second)))
    for entry in view.groups[0].revisions:
        assert (entry.candidates.lent, entry.candidates.last_resort, entry.lending) == ((), None, None)
