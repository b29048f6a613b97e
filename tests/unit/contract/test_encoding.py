from copy import deepcopy
from dataclasses import replace

import pytest

from promptgroup_contract.encoding import (
    FORMAT,
    GUARDED_FORMAT,
    decode_group,
    decode_table,
    encode_group,
    encode_table,
)
from promptgroup_contract.engine_tls import CONFIG_MAP, EngineTls
from promptgroup_contract.table import (
    CacheScope,
    Engine,
    Group,
    ModelAlias,
    Policy,
    Prompt,
    PromptRef,
    ResponseCaching,
    Revision,
    RoutingTable,
    Sharing,
    Slot,
    SlotState,
    TableError,
    TimeLimits,
)

TLS = EngineTls(CONFIG_MAP, "engine-ca", "ca.crt", "engines.chat.svc")
GROUP = Group(
    namespace="chat",
    name="support",
    model="llama",
    created="2026-11-03T11:00:00Z",
    revisions=(
        Revision(
            fingerprint="a" * 32,
            system_bytes=12,
            tools=True,
            weight=100,
            slots=(
                Slot(0, SlotState.READY, "10.0.0.1:8000", "pod-a", "0123456789ab"),
                Slot(1, SlotState.ABSENT),
                Slot(2, SlotState.DRAINING, "[fd00::1]:8000", "pod-c", "ba9876543210", tls=TLS),
            ),
            tokens=1700,
            engine=Engine(
                "0123456789abcdef",
                kv_tokens=400_000,
                prefill_rate=9_800,
                step_tokens=8192,
                max_sequences=512,
                copy_rate=70_000,
            ),
            prompt_from=PromptRef("ConfigMap", "support-aaaaaaaa"),
        ),
        Revision("b" * 32, 0, tools=False, weight=0, slots=()),
    ),
    policy=Policy.LEAST_REQUEST,
    sharing=Sharing.DEDICATED,
    load_factor_percent=150,
    session_header="x-chat-id",
    time_limits=TimeLimits(first_token=30, idle=60, keep_alive=10),
    responses=ResponseCaching(
        stale=7,
        ttl=3600,
        max_bytes=64 * 2**20,
        scope=CacheScope.CALLER,
        trust_seed=True,
    ),
)
TABLE = RoutingTable((GROUP,), "v7")


def test_a_group_is_read_as_it_was_written():
    assert decode_group("chat", "support", encode_group(GROUP)) == GROUP


def test_a_router_that_would_send_in_the_clear_does_not_read_a_group_whose_engines_serve_tls():
    encoded = encode_group(GROUP)
    assert encoded["format"] == GUARDED_FORMAT
    plain = tuple(replace(each, slots=()) for each in GROUP.revisions)
    assert encode_group(replace(GROUP, revisions=plain))["format"] == FORMAT


def test_a_slot_whose_verification_cannot_be_read_is_never_plain_http():
    encoded = encode_group(GROUP)
    encoded["revisions"][0]["slots"][2]["tls"] = "ConfigMap/engine-ca"
    with pytest.raises(TableError, match="tls is 'ConfigMap/engine-ca'"):
        decode_group("chat", "support", encoded)


def test_a_table_is_read_as_it_was_written():
    assert decode_table(encode_table(TABLE)) == TABLE


def test_a_table_file_carries_prompts_and_a_route_never_does():
    secret = Prompt("the launch code", '[{"a":1}]')
    revision = replace(GROUP.revisions[0], prompt=secret)
    group = replace(GROUP, revisions=(revision,))
    assert "launch code" not in repr(encode_group(group))
    assert decode_table(encode_table(RoutingTable((group,)))).groups[0].revisions[0].prompt == secret


def test_what_a_slot_has_not_is_not_written():
    slots = encode_group(GROUP)["revisions"][0]["slots"]
    assert slots[1] == {"slot": 1, "state": "Absent"}


def test_what_is_known_of_engines_is_written_by_these_names():
    assert encode_group(GROUP)["revisions"][0] | {"slots": []} == {
        "fingerprint": "a" * 32,
        "systemBytes": 12,
        "tools": True,
        "weight": 100,
        "slots": [],
        "tokens": 1700,
        "engine": {
            "settings": "0123456789abcdef",
            "kvTokens": 400_000,
            "prefillTokensPerSecond": 9_800,
            "stepTokens": 8192,
            "maxSequences": 512,
            "copyTokensPerSecond": 70_000,
        },
        "promptFrom": {"kind": "ConfigMap", "name": "support-aaaaaaaa"},
    }


def test_what_nobody_knows_of_engines_is_not_written():
    assert {"tokens", "engine"}.isdisjoint(encode_group(GROUP)["revisions"][1])


def test_a_route_from_before_engines_were_known_is_read():
    spec = encode_group(GROUP)
    del spec["sharing"], spec["revisions"][0]["tokens"], spec["revisions"][0]["engine"]
    group = decode_group("chat", "support", spec)
    assert (group.sharing, group.revisions[0].tokens, group.revisions[0].engine) == (Sharing.POOL, 0, Engine())


def test_a_revision_that_lends_nothing_says_so():
    lent, kept = (replace(GROUP, revisions=(replace(GROUP.revisions[0], lends=each),)) for each in (True, False))
    assert "lends" not in encode_group(lent)["revisions"][0]
    assert encode_group(kept)["revisions"][0]["lends"] is False
    assert decode_group("chat", "support", encode_group(kept)) == kept


def test_a_route_of_a_newer_operator_is_read():
    spec = encode_group(GROUP)
    first = spec["revisions"][0]
    spec["new"] = first["new"] = first["slots"][0]["new"] = first["engine"]["new"] = {"a": 1}
    assert decode_group("chat", "support", spec) == GROUP


def test_what_may_be_left_out_has_a_default():
    group = decode_group("chat", "support", {"format": FORMAT, "model": "llama"})
    assert group == Group("chat", "support", "llama", "", ())
    assert (group.policy, group.sharing) == (Policy.EXPECTED_TTFT, Sharing.POOL)
    assert (group.load_factor_percent, group.session_header) == (125, "x-session-id")


def test_slots_are_read_in_order_whatever_order_they_stand_in():
    spec = encode_group(GROUP)
    spec["revisions"][0]["slots"].reverse()
    assert decode_group("chat", "support", spec) == GROUP


def test_a_session_header_is_compared_in_lower_case():
    assert decode_group("c", "s", encode_group(GROUP) | {"sessionHeader": "X-Chat-Id"}).session_header == "x-chat-id"


def test_an_empty_table_is_one():
    assert decode_table({"format": FORMAT}) == RoutingTable()


def changed(*path_and_value):
    *path, last, value = path_and_value
    spec = deepcopy(encode_group(GROUP))
    node = spec
    for key in path:
        node = node[key]
    if value is KeyError:
        del node[last]
    else:
        node[last] = value
    return spec


FIRST = ("revisions", 0)
SLOT = (*FIRST, "slots", 0)

REFUSED = {
    "not an object": ([], "chat/support is a list, expected an object"),
    "no format": (
        changed("format", KeyError),
        "chat/support: it has no format, so it is neither a table nor a PromptRoute",
    ),
    "a format of the future": (
        changed("format", 3),
        "chat/support: format is 3, this router reads formats 1 and 2: upgrade the router",
    ),
    "no model": (changed("model", KeyError), "chat/support: model is missing, expected a string"),
    "a model that is no text": (changed("model", 7), "chat/support: model is 7, expected a string"),
    "an unknown policy": (
        changed("policy", "Random"),
        "chat/support: policy is 'Random', expected one of " + ", ".join(Policy),
    ),
    "a load factor below one": (
        changed("loadFactorPercent", 99),
        "chat/support: loadFactorPercent is 99, expected a whole number from 100",
    ),
    "a load factor that is no number": (
        changed("loadFactorPercent", "125"),
        "chat/support: loadFactorPercent is '125', expected a whole number from 100",
    ),
    "revisions that are no list": (changed("revisions", {}), "chat/support: revisions is an object, expected a list"),
    "a revision that is none": (
        changed("revisions", 0, "x"),
        "chat/support: revisions[0] is a string, expected an object",
    ),
    "two of one fingerprint": (
        changed("revisions", 1, "fingerprint", "a" * 32),
        f"chat/support: revisions has '{'a' * 32}' twice",
    ),
    "a negative weight": (
        changed(*FIRST, "weight", -1),
        "chat/support: revisions[0]: weight is -1, expected a whole number from 0",
    ),
    "a weight that is a truth value": (
        changed(*FIRST, "weight", True),
        "chat/support: revisions[0]: weight is True, expected a whole number from 0",
    ),
    "no length": (
        changed(*FIRST, "systemBytes", KeyError),
        "chat/support: revisions[0]: systemBytes is missing, expected a whole number from 0",
    ),
    "two of one slot": (changed(*SLOT, "slot", 1), "chat/support: revisions[0]: slots has 1 twice"),
    "a slot that no ring has": (
        changed(*SLOT, "slot", 1 << 32),
        "chat/support: revisions[0].slots[0]: slot is 4294967296, expected a whole number of at most 4294967295",
    ),
    "more tokens than a number of JSON is sure to hold": (
        changed(*FIRST, "engine", "kvTokens", 1 << 53),
        f"chat/support: revisions[0].engine: kvTokens is {1 << 53}, expected a whole number of at most {(1 << 53) - 1}",
    ),
    "an unknown state": (
        changed(*SLOT, "state", "Warm"),
        "chat/support: revisions[0].slots[0]: state is 'Warm', expected one of Ready, Draining, Absent",
    ),
    "no state": (
        changed(*SLOT, "state", KeyError),
        "chat/support: revisions[0].slots[0]: state is missing, expected one of Ready, Draining, Absent",
    ),
    "an unknown sharing": (
        changed("sharing", "Shared"),
        "chat/support: sharing is 'Shared', expected one of Pool, Dedicated",
    ),
    "a prefix of less than no tokens": (
        changed(*FIRST, "tokens", -1),
        "chat/support: revisions[0]: tokens is -1, expected a whole number from 0",
    ),
    "an engine that is none": (
        changed(*FIRST, "engine", "vLLM"),
        "chat/support: revisions[0]: engine is a string, expected an object",
    ),
    "settings that are no digest": (
        changed(*FIRST, "engine", "settings", 7),
        "chat/support: revisions[0].engine: settings is 7, expected a string",
    ),
    "a fraction of a token": (
        changed(*FIRST, "engine", "kvTokens", 1.5),
        "chat/support: revisions[0].engine: kvTokens is 1.5, expected a whole number from 0",
    ),
    "a rate that is no number": (
        changed(*FIRST, "engine", "prefillTokensPerSecond", "fast"),
        "chat/support: revisions[0].engine: prefillTokensPerSecond is 'fast', expected a whole number from 0",
    ),
    "copies without end": (
        changed(*FIRST, "engine", "copyTokensPerSecond", 1e400),
        "chat/support: revisions[0].engine: copyTokensPerSecond is inf, expected a whole number from 0",
    ),
    "a negative step": (
        changed(*FIRST, "engine", "stepTokens", -8192),
        "chat/support: revisions[0].engine: stepTokens is -8192, expected a whole number from 0",
    ),
    "a reference without a name": (
        changed(*FIRST, "promptFrom", {"kind": "Secret"}),
        "chat/support: revisions[0].promptFrom: name is missing, expected a string",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_route_that_cannot_be_used_is_refused_with_field_value_and_what_is_expected(case):
    spec, message = REFUSED[case]
    with pytest.raises(TableError) as refused:
        decode_group("chat", "support", spec)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    "address",
    [
        "",
        "10.0.0.1",
        "10.0.0.1:",
        ":8000",
        "10.0.0.1:0",
        "10.0.0.1:65536",
        "10.0.0.1:-1",
        "10.0.0.1:٣",
        "a:b",
        "a:" + "1" * 5000,
    ],
)
def test_a_slot_that_takes_requests_needs_an_address(address):
    with pytest.raises(TableError, match=r"slots\[0\]: address is .*, expected host:port for a slot that is Ready"):
        decode_group("chat", "support", changed(*SLOT, "address", address))


def test_an_absent_slot_needs_none():
    spec = changed(*SLOT, "state", "Absent")
    del spec["revisions"][0]["slots"][0]["address"]
    assert decode_group("chat", "support", spec).revisions[0].slots[0].state is SlotState.ABSENT


TABLES = {
    "not an object": (None, "table is null, expected an object"),
    "no format": (
        {"groups": []},
        "table: it has no format, so it is neither a table nor a PromptRoute",
    ),
    "a group that is none": ({"format": 1, "groups": [1]}, "groups[0] is a number, expected an object"),
    "a group without a name": (
        {"format": 1, "groups": [{"namespace": "a", "format": 1}]},
        "groups[0]: name is missing, expected a string",
    ),
    "one group twice": (
        {"format": 1, "groups": [{"namespace": "a", "name": "b", "model": "m", "format": 1}] * 2},
        "groups: a/b is listed twice",
    ),
}


@pytest.mark.parametrize("case", TABLES)
def test_a_table_that_cannot_be_used_is_refused(case):
    data, message = TABLES[case]
    with pytest.raises(TableError) as refused:
        decode_table(data)
    assert str(refused.value) == message


def test_aliases_are_read_as_they_were_written_and_groups_without_any_say_nothing():
    aliased = replace(GROUP, aliases=(ModelAlias("gpt-4o", "2026-11-25T03:00:00Z"), ModelAlias("l8")))
    encoded = encode_group(aliased)
    assert encoded["format"] == encode_group(GROUP)["format"]
    assert encoded["aliases"] == [{"name": "gpt-4o", "since": "2026-11-25T03:00:00Z"}, {"name": "l8"}]
    assert decode_group("chat", "support", encoded) == aliased
    assert "aliases" not in encode_group(GROUP)


@pytest.mark.parametrize(
    "aliases", ["gpt", ["gpt"], [{}], [{"name": 1}], [{"name": "a", "since": 1}], [{"name": "a"}, {"name": "a"}]]
)
def test_aliases_that_are_none(aliases):
    with pytest.raises(TableError, match="chat/support: aliases"):
        decode_group("chat", "support", encode_group(GROUP) | {"aliases": aliases})
