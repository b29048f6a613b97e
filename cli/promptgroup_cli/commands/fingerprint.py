"""`promptgroup fingerprint`: print the fingerprint of prompts, requests and PromptGroups, and what it covers."""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from promptgroup_cli.base import bounded_json
from promptgroup_cli.base.bounded_json import JsonError
from promptgroup_cli.base.errors import ExitStatus, InputError, exit_statuses
from promptgroup_cli.base.flags import add_output
from promptgroup_cli.lint.subject import late_system
from promptgroup_cli.reach import inputs
from promptgroup_cli.reach.files import STDIN, read_bytes, shown
from promptgroup_cli.reach.inputs import MOST_BYTES, InputFormat, InputRequest, InputText, add_files
from promptgroup_contract.fingerprint import Fingerprint, canonical_tools, hash_prefix
from promptgroup_router.apis.request import ApiKind

EXAMPLES = """\
  promptgroup fingerprint prompt.txt --tools tools.json
  promptgroup fingerprint --check deploy/*.yaml        # in CI: does each pin match its prompt?
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's description and flags."""
    parser.description = "Print the fingerprint of each prompt, which a PromptGroup may pin as spec.prompt.fingerprint."
    parser.epilog = exit_statuses(
        "every prompt has a fingerprint, and with --check every pin is right",
        "a prompt is empty or not the first message, or --check finds a wrong pin",
        EXAMPLES,
    )
    add_files(parser, default=[STDIN])
    parser.add_argument("--tools", metavar="FILE", help="tool definitions of a prompt: a JSON list")
    parser.add_argument("--check", action="store_true", help="compare with spec.prompt.fingerprint of PromptGroups")
    add_output(parser, "text", "json")


@dataclass(frozen=True, slots=True)
class Hashed:
    """A fingerprint, and the sizes of the texts that it covers."""

    name: str
    """The file, and the place in it."""
    fingerprint: Fingerprint
    system: int
    """Bytes of the system text."""
    tools: int
    """Bytes of the tools, in canonical form."""
    messages: int = 0
    """Bytes of the declared messages, in canonical form."""
    note: str = ""
    """A reservation about the prompt."""
    pin: Fingerprint | None = None
    """`spec.prompt.fingerprint`."""
    matches: bool = True
    """False when no PromptGroup can match the prompt in its present form."""

    @property
    def wrong(self) -> bool:
        """True if the pin is another fingerprint."""
        return self.pin not in (None, self.fingerprint)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    hasheds: list[Hashed] = []
    good = True
    pinned = 0
    tools = _tools(arguments.tools)
    for name in arguments.files:
        for digest in _hashes(name, arguments.format, tools):
            good = good and digest.matches and not (arguments.check and digest.wrong)
            pinned += digest.pin is not None
            if arguments.output == "json":
                hasheds.append(digest)
            else:
                print(_line(digest))
    if arguments.output == "json":
        print(json.dumps([_document(hashed) for hashed in hasheds], indent=2))
    if arguments.check and not pinned:
        sys.stdout.flush()
        raise InputError(
            "--check: no PromptGroup here has spec.prompt.fingerprint, so nothing is checked: add the pins"
        )
    return ExitStatus.OK if good else ExitStatus.NEGATIVE


def _hashes(name: str, given: InputFormat | None, tools: str | None) -> Iterator[Hashed]:
    with inputs.opened(name, given) as content:
        if isinstance(content, InputText) and content.format is InputFormat.PROMPT:
            yield _hashed(shown(name), content.content.encode(), tools or "")
            return
        if tools is not None:
            raise InputError(f"{shown(name)}: it brings its own tools: omit --tools, or use --as prompt")
        if isinstance(content, InputText):
            yield from _declared(shown(name), content.content)
            return
        for request in content:
            yield _sent(shown(name), request)


def _hashed(name: str, system: bytes, tools: str, note: str = "") -> Hashed:
    """Return the fingerprint of a prompt; one that is empty matches nothing."""
    empty = not system and not tools
    if empty:
        note = "it has neither a system text nor tools, so that no PromptGroup can match it: is it the right file?"
    return Hashed(name, hash_prefix(tools, system), len(system), len(tools.encode()), note=note, matches=not empty)


def _declared(name: str, content: str) -> Iterator[Hashed]:
    # the models of the CRD take a third of a second to import, which prompts and requests should not wait for
    from promptgroup_cli.rehearsal import manifest  # noqa: PLC0415

    try:
        result = manifest.declared_prompts(content, "default")
    except manifest.ManifestError as error:
        raise InputError(f"{name}: {error}") from None
    for declared in result:
        prompt = declared.text.prompt
        yield Hashed(
            f"{name}: PromptGroup {declared.key.name}",
            declared.text.fingerprint,
            len(prompt.system.encode()),
            len(prompt.tools.encode()),
            len(prompt.messages.encode()),
            pin=declared.pin,
        )


def _sent(name: str, request: InputRequest) -> Hashed:
    parsed_request = request.ask
    place = f"{name}:{request.line}"
    if parsed_request is None:
        raise InputError(f"{place}: {request.problem}")
    if parsed_request.kind is ApiKind.TEXT:
        note = "only a PromptGroup tells where the prompt ends and the input begins"
        return _hashed(place, parsed_request.system.encode(), parsed_request.tools, note)
    field, late = late_system(parsed_request)
    if late:
        system = late.encode()
        note = f"the system text is {field}, and PromptGroups match the first message only: send it first"
        return Hashed(
            place,
            hash_prefix(parsed_request.tools, system),
            len(system),
            len(parsed_request.tools.encode()),
            note=note,
            matches=False,
        )
    return _hashed(place, parsed_request.system.encode(), parsed_request.tools)


def _tools(name: str | None) -> str | None:
    if name is None:
        return None
    try:
        listed = bounded_json.parse(read_bytes(name, MOST_BYTES, f"--tools {shown(name)}"))
    except JsonError as error:
        raise InputError(f"--tools {shown(name)}: {error}") from None
    if not isinstance(listed, list):
        raise InputError(f"--tools {shown(name)}: not a JSON list of tool definitions")
    return canonical_tools(listed)


def _line(hashed: Hashed) -> str:
    covers = f"system {hashed.system} bytes, " + (f"tools {hashed.tools} bytes" if hashed.tools else "no tools")
    covers += f", messages {hashed.messages} bytes" if hashed.messages else ""
    notes = [f"; {hashed.note}"] if hashed.note else []
    if hashed.pin is not None:
        notes.append(f"; WRONG: pinned as {hashed.pin}" if hashed.wrong else "; pinned")
    return f"{hashed.fingerprint}  {hashed.name} ({covers}{''.join(notes)})"


def _document(hashed: Hashed) -> dict[str, object]:
    return {
        "name": hashed.name,
        "fingerprint": hashed.fingerprint,
        "systemBytes": hashed.system,
        "toolsBytes": hashed.tools,
        "messagesBytes": hashed.messages,
        "pinned": hashed.pin,
        "note": hashed.note or None,
    }
