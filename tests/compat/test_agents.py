"""Requests in the shapes of coding agents: their headers, their marks for caching, and how their turns grow."""

import copy
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from promptgroup_router.apis.anthropic import parse_messages
from promptgroup_router.apis.endpoints import ENDPOINTS
from promptgroup_router.apis.responses import parse_response
from support.served import ENGINES, Served, served

SHAPES = Path(__file__).parent / "shapes"
TURNS = 6


def shape(name: str) -> dict:
    return json.loads((SHAPES / f"{name}.json").read_text())


CLAUDE, CODEX = shape("claude_code"), shape("codex")


def claude_turns() -> Iterator[dict]:
    """Turns of Claude Code: what is billed changes, and the mark for caching moves to the newest message."""
    body = copy.deepcopy(CLAUDE["body"])
    for number in range(TURNS):
        body["system"][0]["text"] = f"x-anthropic-billing-header: cc_version=2.1.0; cch={number:05x};"
        yield copy.deepcopy(body)
        for message in body["messages"]:
            for block in message["content"]:
                block.pop("cache_control", None)
        body["messages"] += [{"role": "assistant", "content": CLAUDE["answer"]}, copy.deepcopy(CLAUDE["then"])]


def codex_turns() -> Iterator[dict]:
    """Turns of Codex: it stores nothing and sends all items of the conversation each time."""
    body = copy.deepcopy(CODEX["body"])
    for number in range(TURNS):
        body["client_metadata"] = {"turn": str(number)}
        yield copy.deepcopy(body)
        body["input"] += [*CODEX["answer"], CODEX["then"]]


def send(fleet: Served, agent: dict, body: dict) -> tuple[str, list[dict]]:
    """Return the replica that served a turn, and the events of its answer."""
    headers = agent["headers"] | {"content-type": "application/json"}
    request = urllib.request.Request(fleet.url + agent["path"], json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=20) as answer:
        events = [line for line in answer.read().decode().split("\n\n") if line]
        return answer.headers["x-promptgroup-served-by"], [json.loads(each.partition("\ndata: ")[2]) for each in events]


@pytest.fixture(params=["claude_code", "codex"])
def agent(request: pytest.FixtureRequest) -> tuple[dict, list[dict]]:
    return (CLAUDE, list(claude_turns())) if request.param == "claude_code" else (CODEX, list(codex_turns()))


def cached_tokens(events: list[dict]) -> int:
    """Return how much of the prompt was cached, as the last event says it."""
    if "response" in events[-1]:
        return events[-1]["response"]["usage"]["input_tokens_details"]["cached_tokens"]
    return events[-2]["usage"]["cache_read_input_tokens"]


def test_an_agents_turns_match_its_group_and_find_their_history(agent, tmp_path):
    shaped, turns = agent
    parse = ENDPOINTS[shaped["path"].partition("?")[0].encode()].parse
    ask = parse(json.dumps(turns[0]).encode())
    with served(tmp_path, system=ask.system, tools=ask.tools) as fleet:
        replicas, cached = [], []
        for body in turns:
            replica, events = send(fleet, shaped, body)
            replicas.append(replica)
            cached.append(cached_tokens(events))
    assert replicas[0].startswith("chat/support/")
    assert len(set(replicas)) == 1
    assert cached == sorted(cached)
    # what a turn adds may fill no block of a real engine's cache
    assert cached[1] > 100
    assert cached[-1] > cached[1] or ENGINES


def test_agents_side_by_side_are_told_apart(agent, tmp_path):
    """Sub-agents share the headers of their session, and have conversations of their own."""
    shaped, turns = agent
    parse = ENDPOINTS[shaped["path"].partition("?")[0].encode()].parse
    ask = parse(json.dumps(turns[0]).encode())
    with served(tmp_path, system=ask.system, tools=ask.tools) as fleet:
        for number in range(6):
            body = json.loads(
                json.dumps(turns[0]).replace("Which tests fail?", f"Which tests fail? Part {number}. " * 20)
            )
            send(fleet, shaped, body)
        assert len(fleet.router.state.balancer.locations) == 6


def test_what_an_agent_is_billed_for_is_no_part_of_its_prompt():
    systems = {parse_messages(json.dumps(body).encode()).system for body in claude_turns()}
    assert len(systems) == 1
    assert "billing" not in systems.pop()


def test_built_in_tools_are_no_part_of_a_prompt():
    (tool,) = json.loads(parse_response(json.dumps(CODEX["body"]).encode()).tools)
    assert tool["function"]["name"] == "shell"
