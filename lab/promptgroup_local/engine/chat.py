"""The chat template: tools, then the messages in order, each between a role marker and an end marker.

Tools are first and are spelled as the client sent them, key order included: a client whose serialiser shuffles keys
loses its cache here as it does with a real template.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from promptgroup_local.engine.tokenizer import Special, tokenize

_ROLES: Mapping[str, Special] = {
    "system": Special.SYSTEM,
    "developer": Special.SYSTEM,
    "user": Special.USER,
    "assistant": Special.ASSISTANT,
    "tool": Special.TOOL,
}


class TemplateError(ValueError):
    """Messages that cannot be rendered: the text names the message and the expected form."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The tokens of a prompt."""

    tokens: tuple[int, ...]
    tier1: int = 0
    """Leading tokens that are tools and system text: the part that all users of a task share. 0 without either."""


def render(
    messages: Sequence[object], tools: Sequence[object] | None = None, *, generation_prompt: bool = True
) -> Prompt:
    """Tokens of a chat.

    Raises:
        TemplateError: a message that is no object, has an unknown role or content that is no text.
    """
    tokens: list[int] = [Special.BEGIN]
    tier1 = 0
    if tools:
        tokens += [Special.TOOLS, *tokenize(orjson.dumps(tools).decode()), Special.END]
        tier1 = len(tokens)
    leading = True
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise TemplateError(f"messages[{index}] is a {type(message).__name__}, expected an object")
        marker = _marker(message.get("role"), f"messages[{index}].role")
        tokens += [marker, *tokenize(_text(message, f"messages[{index}]")), Special.END]
        leading = leading and marker is Special.SYSTEM
        if leading:
            tier1 = len(tokens)
    if generation_prompt:
        tokens.append(Special.ASSISTANT)
    return Prompt(tuple(tokens), tier1)


def plain(text: str) -> Prompt:
    """Tokens of a text without roles, as /v1/completions accepts it."""
    return Prompt((Special.BEGIN, *tokenize(text)))


def _marker(role: object, at: str) -> Special:
    if isinstance(role, str) and role in _ROLES:
        return _ROLES[role]
    raise TemplateError(f"{at} is {role!r}, expected one of {', '.join(_ROLES)}")


def _text(message: Mapping[str, object], at: str) -> str:
    content = message.get("content")
    calls = message.get("tool_calls")
    text = orjson.dumps(calls).decode() if calls else ""
    match content:
        case None:
            return text
        case str():
            return content + text
        case list():
            return "\n".join(_part(part, f"{at}.content[{index}]") for index, part in enumerate(content)) + text
        case _:
            raise TemplateError(f"{at}.content is a {type(content).__name__}, expected a string or a list of parts")


def _part(part: object, at: str) -> str:
    match part:
        case {"type": "text", "text": str(text)}:
            return text
        case _:
            raise TemplateError(f"{at} is no text part: this engine serves text only")
