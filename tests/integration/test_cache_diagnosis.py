"""A client asks why its prompt was not found, over the wire, of engines that never heard of the question."""

import json
from pathlib import Path
from typing import Any

import pytest
import urllib3

from support.served import served
from support.tables import SYSTEM

pytestmark = pytest.mark.integration


def test_a_conversation_is_told_what_changed_whole_and_streamed(tmp_path: Path) -> None:
    with served(tmp_path, engines=2) as found:

        def ask(text: str, previous: str | None, *, streamed: bool = False) -> tuple[list[dict[str, Any]], str, bytes]:
            body = {
                "model": "llama", "max_tokens": 4, "system": SYSTEM, "stream": streamed,
                "messages": [{"role": "user", "content": text}], "diagnostics": {"previous_message_id": previous},
            }  # fmt: skip
            answer = urllib3.request("POST", f"{found.url}/v1/messages", json=body, timeout=20)
            assert answer.status == 200, answer.data
            header = answer.headers["x-promptgroup-cache-miss"]
            if not streamed:
                return [answer.json()], header, b""
            events = [json.loads(line[6:]) for line in answer.data.decode().splitlines() if line.startswith("data: ")]
            begin = next(each["message"] for each in events if each["type"] == "message_start")
            end = next(each for each in events if each["type"] == "message_delta")
            return [begin, end], header, answer.data.rpartition(b"\n: ")[2].strip()

        (first,), header, _ = ask("tell me of the harbour " * 50, None)
        assert_held_against_usage(first, header)
        (changed,), header, _ = ask("tell me of the garden " * 50, first["id"])
        assert changed["diagnostics"]["cache_miss_reason"]["type"] == "messages_changed"
        assert header.startswith("messages_changed;tokens=")
        assert "forecast" not in header
        (begin, end), header, comment = ask("tell me of the garden " * 50, changed["id"], streamed=True)
        assert begin["diagnostics"]["cache_miss_reason"] is None
        assert header == "none;forecast"
        assert (end["diagnostics"], comment) == ({"cache_miss_reason": None}, b"x-promptgroup-cache-miss: none")
        (lost, _), header, _ = ask("hi", "msg_unknown", streamed=True)
        assert (
            lost["diagnostics"]["cache_miss_reason"]["type"] == header.partition(";")[0] == "previous_message_not_found"
        )


def assert_held_against_usage(answer: dict[str, Any], header: str) -> None:
    """An answer whose usage says that nothing was cached is not told that nothing was missed."""
    usage, told = answer["usage"], answer["diagnostics"]
    assert "forecast" not in told
    if usage["cache_read_input_tokens"] == 0 and usage["input_tokens"] > 200:
        assert told["cache_miss_reason"]["cache_missed_input_tokens"] > 0
        assert header != "none"


def test_a_cache_that_was_lost_behind_the_routers_back_is_told(tmp_path: Path) -> None:
    with served(tmp_path, engines=1) as found:

        def ask(previous: str | None) -> tuple[dict[str, Any], str]:
            body = {
                "model": "llama",
                "max_tokens": 4,
                "system": SYSTEM,
                "diagnostics": {"previous_message_id": previous},
            }
            body["messages"] = [{"role": "user", "content": "tell me of the harbour " * 50}]
            answer = urllib3.request("POST", f"{found.url}/v1/messages", json=body, timeout=20)
            return answer.json(), answer.headers["x-promptgroup-cache-miss"]

        first, _ = ask(None)
        again, header = ask(first["id"])
        assert (again["diagnostics"], header) == ({"cache_miss_reason": None}, "none")
        address = found.router.state.index.table.groups[0].revisions[0].slots[0].address
        reset = urllib3.request("POST", f"http://{address}/reset_prefix_cache", timeout=20)
        assert reset.status == 200
        lost, header = ask(again["id"])
        assert lost["usage"]["cache_read_input_tokens"] == 0
        assert lost["diagnostics"]["cache_miss_reason"]["cache_missed_input_tokens"] > 100
        assert header.startswith("evicted;tokens=")


def test_any_client_asks_by_a_header(tmp_path: Path) -> None:
    with served(tmp_path, engines=2) as found:

        def ask(text: str, asked: dict[str, str]) -> tuple[str, str | None]:
            body = {"model": "support", "max_tokens": 4, "messages": [{"role": "user", "content": text}]}
            answer = urllib3.request("POST", f"{found.url}/v1/chat/completions", json=body, headers=asked, timeout=20)
            assert answer.status == 200, answer.data
            return answer.json()["id"], answer.headers.get("x-promptgroup-cache-miss")

        first, told = ask("tell me of the harbour " * 50, {"x-promptgroup-diagnostics": ""})
        assert told is not None
        assert "forecast" not in told
        assert ask("hi", {"x-promptgroup-diagnostics": first})[1].startswith("messages_changed;tokens=")
        assert ask("hi", {})[1] is None
