"""The requests that all routers get: conversations with a declared prompt, of a given size. Pure."""

import json

MODEL = "tiny"
SYSTEM = "You are the support assistant of Example Ltd. Answer in at most two sentences. " * 8
TURN = "I ordered the blue kettle on Monday, and the parcel that came this morning has the green one in it. "
SESSIONS = 64
"""Conversations that take turns. Bodies of 1,000 KB are of fewer."""
SIZES = (1, 8, 100, 1000)
"""Kilobytes of a body."""
CREDENTIALS = {"whole": "sk-0123456789abcdef", "streaming": "sk-streaming-0123456789"}
"""Caller → API key: of those who get whole answers, and of those who get streams."""
TURN_BYTES = 1024
"""Most bytes of one message: longer conversations have more messages."""


def body(kilobytes: int, session: int, *, stream: bool = False) -> bytes:
    """Return a body of about that many thousand bytes."""
    left = kilobytes * 1000 - len(SYSTEM) - 150
    messages = [{"role": "system", "content": SYSTEM}]
    while True:
        text = f"Session {session}, turn {len(messages)}. " + TURN * (min(left, TURN_BYTES) // len(TURN))
        messages.append({"role": "user", "content": text})
        left -= len(text) + 40
        if left < TURN_BYTES // 2:
            break
        answer = "The green kettle can stay with you; the blue one leaves today. " * 4
        messages.append({"role": "assistant", "content": answer})
        left -= len(answer) + 40
    if messages[-1]["role"] != "user":
        messages.append({"role": "user", "content": "And now?"})
    return json.dumps({"model": MODEL, "messages": messages, "stream": stream}, separators=(",", ":")).encode()


def headers(session: int, *, stream: bool = False) -> dict[str, str]:
    """Return the fields that a client of the official kind sends."""
    return {
        "Host": "router.example",
        "Content-Type": "application/json",
        "Accept": "application/json",
        # the one field that every router passes on: by it the engines' nginx knows a stream
        "Authorization": f"Bearer {CREDENTIALS['streaming' if stream else 'whole']}",
        "User-Agent": "openai-python/2.0",
        "X-Session-Id": f"session-{session}",
    }


def sessions(kilobytes: int) -> int:
    """Return how many conversations of that size take turns."""
    return max(4, min(SESSIONS, 8000 // kilobytes))


def request(kilobytes: int, session: int, *, stream: bool = False) -> bytes:
    """Return a whole request."""
    content = body(kilobytes, session, stream=stream)
    fields = headers(session, stream=stream) | {"Content-Length": str(len(content))}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST /v1/chat/completions HTTP/1.1\r\n{head}\r\n".encode() + content
