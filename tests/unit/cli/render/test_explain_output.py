import orjson
import pytest

from promptgroup_cli.render import explain_output
from promptgroup_cli.render.columns import INDENT, WIDTH
from promptgroup_router.contract.table import Engine, Policy, SlotState
from promptgroup_router.explain import explain_with_table, parse_explain_request
from support.tables import SYSTEM, group, revision, slot, table

SLOTS = (slot(0), slot(1, SlotState.ABSENT), slot(2))
SUPPORT = group("support", revision(slots=SLOTS, engine=Engine("one", 100_000, 10_000), tokens=2000))


def told(system=SYSTEM, model="llama", headers=None, groups=(SUPPORT,)):
    said = ([{"role": "system", "content": system}] if system else []) + [{"role": "user", "content": "Hi"}]
    body = orjson.dumps({"model": model, "messages": said}).decode()
    question = parse_explain_request(orjson.dumps({"body": body, "headers": headers or {}}))
    return orjson.loads(explain_with_table(table(*groups), question))


def facts(text):
    """Name → text of the facts, joined; the table's lines are left out."""
    found, name = {}, ""
    for line in text.partition("\n\n")[0].splitlines():
        name = line[:INDENT].strip().removesuffix(":") or name
        found[name] = f"{found.get(name, '')} {line[INDENT:]}".strip()
    return found


def test_a_request_that_brings_the_prompt():
    found = told(headers={"x-session-id": "7"})
    text = explain_output.table(found)
    shown = facts(text)
    assert list(shown) == ["Group", "Session", "Revision", "Tokens", "Home", "Goes to"]
    assert shown["Group"] == "chat/support (model llama), matched by its system prompt"
    assert shown["Session"] == f"{found['session']['key']}, named by header x-session-id; not seen before"
    assert shown["Tokens"].startswith("about 2,001, with 2,000 of the prefix and 0 of the history")
    assert shown["Goes to"] == f"{found['choice']}: {found['why']} (ExpectedTTFT)"
    assert all(len(line) <= WIDTH + 20 for line in text.splitlines())


@pytest.mark.parametrize(
    ("caller", "words"), [({"name": "alice"}, "alice"), ({"name": None}, "not known here")], ids=["known", "unknown"]
)
def test_the_caller_is_shown_where_the_group_asks_who_it_is(caller, words):
    shown = facts(explain_output.table(told() | {"caller": caller}))
    assert list(shown)[:3] == ["Group", "Caller", "Session"]
    assert shown["Caller"].startswith(words)


def test_replicas_are_listed_as_weighed_and_then_the_slots_that_get_nothing():
    rows = [line.split() for line in explain_output.table(told()).partition("\n\n")[2].splitlines()]
    assert rows[0][:5] == ["REPLICA", "RING", "STATE", "REQUESTS", "CACHED"]
    assert rows[0][-1] == "COST"
    assert [row[2] for row in rows[1:]] == ["Ready", "Ready", "Absent"]
    assert {row[1] for row in rows[1:]} == {"0", "1", "2"}
    assert rows[1][4] == "2,000"


def test_a_policy_that_weighs_no_time_shows_none():
    simple = group("support", revision(), policy=Policy.LEAST_REQUEST)
    rows = [line.split() for line in explain_output.table(told(groups=(simple,))).partition("\n\n")[2].splitlines()]
    assert rows[0] == ["REPLICA", "RING", "STATE", "REQUESTS"]


@pytest.mark.parametrize(
    ("changes", "fact", "words"),
    [
        ({"match": {"how": "name", "group": "chat/support", "model": "llama"}}, "Group", "by its name"),
        (
            {"match": {"how": "content", "group": "chat/support", "model": "llama", "alias": "gpt-4o"}},
            "Group",
            "(model llama by its alias gpt-4o), matched by its system prompt",
        ),
        (
            {"session": {"key": "ff", "named": False, "source": "", "last": None}},
            "Session",
            "ff, recognised by the start of the",
        ),
        (
            {"session": {"key": "ff", "named": False, "source": "header api-key", "last": None}},
            "Session",
            "by the start of the conversation, within header api-key",
        ),
        (
            {"session": {"key": "ff", "named": True, "source": "header a",
                         "last": {"replica": "a/b/c/0", "tokens": 2345, "secondsAgo": 3.5}}},
            "Session",
            "served 3.5 s ago by a/b/c/0, with 2,345 tokens",
        ),
        (
            {"revision": {"fingerprint": "a" * 32, "weight": 10, "weights": 100, "why": "weight"}},
            "Revision",
            "aaaaaaaa (weight 10 of 100): drawn by weight for a new session",
        ),
        (
            {"revision": {"fingerprint": "a" * 32, "weight": 0, "weights": 100, "why": "session"}},
            "Revision",
            "the session began with it",
        ),
        ({"ring": [{"replica": "a/b/c/1", "state": "Absent"}], "candidates": []}, "Home", "c/1 (Absent)"),
        ({"choice": None, "why": "no room"}, "Goes to", "no replica yet: no room"),
    ],
)  # fmt: skip
def test_facts_in_words(changes, fact, words):
    assert words in facts(explain_output.table(told() | changes))[fact]


def test_a_request_without_a_group_is_told_which_prompt_it_leaves():
    shown = facts(explain_output.table(told(system=SYSTEM[:-1] + "!")))
    assert shown["Group"].startswith("none (model llama): no group declares")
    assert f"departs from the prompt of chat/support at byte {len(SYSTEM) - 1}" in shown["Group"]
    assert "Revision" not in shown


def test_states_that_a_replica_cannot_be_taken_in():
    found = told()
    first, second = found["candidates"]
    found["candidates"] = [first | {"room": False}, second | {"ejected": True, "cost": None, "room": None}]
    rows = [line.split() for line in explain_output.table(found).partition("\n\n")[2].splitlines()[1:]]
    assert [row[2] for row in rows] == ["Full", "Ejected", "Absent"]
    found["candidates"] = [first | {"lent": True}, second]
    assert "Lent" in explain_output.table(found)


def test_a_refusal():
    shown = explain_output.table(told(model="nobody"))
    assert shown.startswith("Refused:      404 model_not_found: model 'nobody' is neither")


def test_a_group_without_a_replica():
    nobody = group("support", revision(slots=(slot(0, SlotState.ABSENT),)))
    shown = facts(explain_output.table(told(groups=(nobody,))))
    assert list(shown) == ["Group", "Session", "Revision", "Tokens", "Refused"]
    assert shown["Refused"].startswith("503 no_replica: group 'chat/support' has no replica")
