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

        def ask(text: str, previous: str | None, *, streamed: bool = False) -> tuple[dict[str, Any], str]:
            body = {
                "model": "llama", "max_tokens": 4, "system": SYSTEM, "stream": streamed,
                "messages": [{"role": "user", "content": text}], "diagnostics": {"previous_message_id": previous},
            }  # fmt: skip
            answer = urllib3.request("POST", f"{found.url}/v1/messages", json=body, timeout=20)
            assert answer.status == 200, answer.data
            header = answer.headers["x-promptgroup-cache-miss"]
            if not streamed:
                return answer.json(), header
            events = [json.loads(line[6:]) for line in answer.data.decode().splitlines() if line.startswith("data: ")]
            return next(each["message"] for each in events if each["type"] == "message_start"), header

        first, _ = ask("tell me of the harbour " * 50, None)
        assert first["diagnostics"] == {"cache_miss_reason": None}
        changed, header = ask("tell me of the garden " * 50, first["id"])
        assert changed["diagnostics"]["cache_miss_reason"]["type"] == "messages_changed"
        assert header.startswith("messages_changed;tokens=")
        streamed, header = ask("tell me of the garden " * 50, changed["id"], streamed=True)
        assert streamed["diagnostics"] == {"cache_miss_reason": None}
        assert header == "none"
        lost, header = ask("hi", "msg_unknown", streamed=True)
        assert (
            lost["diagnostics"]["cache_miss_reason"]["type"] == header.partition(";")[0] == "previous_message_not_found"
        )


def test_any_client_asks_by_a_header(tmp_path: Path) -> None:
    with served(tmp_path, engines=2) as found:

        def ask(text: str, asked: dict[str, str]) -> tuple[str, str | None]:
            body = {"model": "support", "max_tokens": 4, "messages": [{"role": "user", "content": text}]}
            answer = urllib3.request("POST", f"{found.url}/v1/chat/completions", json=body, headers=asked, timeout=20)
            assert answer.status == 200, answer.data
            return answer.json()["id"], answer.headers.get("x-promptgroup-cache-miss")

        first, told = ask("tell me of the harbour " * 50, {"x-promptgroup-diagnostics": ""})
        assert told == "none"
        assert ask("hi", {"x-promptgroup-diagnostics": first})[1].startswith("messages_changed;tokens=")
        assert ask("hi", {})[1] is None
