"""Behaviour as a script: what happens, and what follows from it, a line each.

    play(exchange, '''
        begin               -> send 2
        failed REFUSED      -> send 0
        answered 200        -> relay
    ''')

A mismatch shows both scripts. `wait 5` lets five seconds pass; `-> nothing` may be left out.
"""

import textwrap
from typing import Any

from promptgroup_router.base.errors import Failure
from promptgroup_router.decision.actions import Action, Refuse, Send
from promptgroup_router.decision.exchange import Exchange


def play(exchange: Exchange, script: str, now: float = 100.0) -> None:
    """Make the script's events happen, and compare what follows."""
    wanted = [_line(line) for line in textwrap.dedent(script).strip().splitlines()]
    happened = []
    for event, _ in wanted:
        name, *arguments = event.split()
        if name == "wait":
            now += float(arguments[0])
            happened.append((event, "nothing"))
            continue
        happened.append((event, _described(_event(exchange, name, arguments, now))))
    assert _text(happened) == _text(wanted)


def _event(exchange: Exchange, name: str, arguments: list[str], now: float) -> Any:
    match name:
        case "failed":
            return exchange.failed(Failure[arguments[0]], now)
        case "answered":
            return exchange.answered(int(arguments[0]), now)
        case "begin" | "expired" | "relaying" | "ended" | "abandoned":
            return getattr(exchange, name)(now)
        case _:
            return getattr(exchange, name)()


def _described(action: Any) -> str:
    match action:
        case Send(member, fresh):
            return f"send {member.slot}{' fresh' if fresh else ''}"
        case Refuse(error):
            return f"refuse {error.status} {error.code}"
        case Action():
            return action.name.lower()
        case _:
            return "nothing"


def _line(line: str) -> tuple[str, str]:
    event, _, action = line.partition("->")
    return event.strip(), action.strip() or "nothing"


def _text(steps: list[tuple[str, str]]) -> list[str]:
    return [f"{event:20} -> {action}" for event, action in steps]


class FakeTransport:
    """Records what a protocol does to its transport."""

    def __init__(self) -> None:
        self.written = b""
        self.did: list[str] = []
        self.unsent = 0

    def write(self, data: bytes) -> None:
        self.written += data

    def writelines(self, parts: list[bytes]) -> None:
        self.written += b"".join(parts)

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def get_extra_info(self, name: str) -> None:
        """There is no socket."""

    def close(self) -> None:
        self.did.append("close")

    def abort(self) -> None:
        self.did.append("abort")

    def write_eof(self) -> None:
        self.did.append("write_eof")

    def can_write_eof(self) -> bool:
        return True

    def pause_reading(self) -> None:
        self.did.append("pause")

    def resume_reading(self) -> None:
        self.did.append("resume")

    def is_closing(self) -> bool:
        return "close" in self.did or "abort" in self.did

    def taken(self) -> bytes:
        """What was written since the last call."""
        data, self.written = self.written, b""
        return data
