import hashlib
import json
import math
from pathlib import Path

import orjson
import pytest

from promptgroup_contract.fingerprint import FINGERPRINT_LENGTH, canonical_tools, fingerprint, hash_prefix, short
from promptgroup_contract.messages import canonical_messages

VECTORS = json.loads((Path(__file__).parents[2] / "golden" / "fingerprints.json").read_text())
BY_NAME = {each["name"]: each for each in VECTORS}


@pytest.mark.parametrize("name", BY_NAME)
def test_vector(name):
    vector = BY_NAME[name]
    assert canonical_tools(vector.get("tools")) == vector["canonicalTools"]
    messages = canonical_messages((each["role"], each["content"]) for each in vector.get("messages", ()))
    assert messages == vector.get("canonicalMessages", "")
    assert hash_prefix(vector["canonicalTools"], vector["system"].encode(), messages) == vector["fingerprint"]
    if not messages:
        assert fingerprint(vector["system"], vector.get("tools")) == vector["fingerprint"]


@pytest.mark.parametrize("name", BY_NAME)
def test_a_vector_follows_from_the_definition(name):
    """hex(SHA-256(tools ‖ 0x00 ‖ system [‖ 0xFF ‖ messages]))[:32], written once more."""
    vector = BY_NAME[name]
    messages = b"\xff" + vector["canonicalMessages"].encode() if "messages" in vector else b""
    whole = vector["canonicalTools"].encode() + b"\0" + vector["system"].encode() + messages
    hashed = hashlib.sha256(whole).hexdigest()
    assert vector["fingerprint"] == hashed[:32]


SAME = [
    ("a system text without tools", "an empty list of tools is no tools"),
    ("one tool", "the order of keys in a tool does not matter"),
]


def test_vectors_are_the_same_exactly_where_they_say_so():
    kinds = {}
    for vector in VECTORS:
        kinds.setdefault(vector["fingerprint"], []).append(vector["name"])
    assert sorted(tuple(names) for names in kinds.values() if len(names) > 1) == SAME


def test_a_hash_seeded_with_canonical_tools_is_the_fingerprint():
    tools = [{"b": 1, "a": [2]}]
    assert hash_prefix(canonical_tools(tools), b"x") == fingerprint("x", tools)


def test_the_short_form_begins_the_long_one():
    full = fingerprint("x")
    assert len(full) == FINGERPRINT_LENGTH
    assert full.startswith(short(full))
    assert len(short(full)) == 8


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, {1, 2}, b"bytes"])
def test_what_json_cannot_say_is_refused(value):
    with pytest.raises(ValueError, match=r"JSON|range"):
        canonical_tools([{"a": value}])


def test_a_number_beyond_doubles_is_refused():
    with pytest.raises(ValueError, match="range of a double"):
        canonical_tools([{"a": [{"b": 10**400}]}])


@pytest.mark.parametrize("value", [1e20, -1e20, 1e21, 1e308, 5e-324, 2**63, 2**64 + 1, 10**20 + 1, 2.0**70, 0.1])
def test_a_number_has_one_form_however_often_it_is_parsed(value):
    once = canonical_tools([{"a": value}])
    assert len(once) < 40
    for parse in (json.loads, orjson.loads):
        assert canonical_tools(parse(json.dumps([{"a": value}]))) == canonical_tools(parse(once)) == once


def test_canonical_tools_are_json_and_canonical_already():
    for vector in VECTORS:
        if vector["canonicalTools"]:
            assert canonical_tools(json.loads(vector["canonicalTools"])) == vector["canonicalTools"]
