"""`promptgroup fingerprint`: the fingerprint of prompts, requests and PromptGroups, and what it covers."""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from promptgroup_cli.reach import inputs
from promptgroup_cli.reach.inputs import InputError, InputFormat, InputRequest, InputText
from promptgroup_cli.rehearsal import manifest
from promptgroup_router.apis.request import ApiKind
from promptgroup_router.contract.fingerprint import canonical_tools, hash_prefix

EXAMPLE = """\
examples:
  promptgroup fingerprint prompt.txt --tools tools.json
  promptgroup fingerprint --check deploy/*.yaml        # in CI: do the pins say what the prompts are?

exit status: 0; 1 when --check finds a pin that is not its prompt's; 2 when a file cannot be read.
"""


@dataclass(frozen=True, slots=True)
class Hashed:
    """A fingerprint, and what it covers."""

    name: str
    """Where the prompt stands."""
    fingerprint: str
    system: int
    """Bytes."""
    tools: int
    """Bytes, in canonical form."""
    left_out: str = ""
    """What instructs the model too, and is not covered."""
    pin: str | None = None

    @property
    def wrong(self) -> bool:
        """Whether it is pinned as another one."""
        return self.pin not in (None, self.fingerprint)


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command and its flags."""
    parser = commands.add_parser(
        "fingerprint",
        help="fingerprint of a prompt, a request or a PromptGroup",
        description="Print the fingerprint of each prompt: what a PromptGroup pins as spec.prompt.fingerprint.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "files",
        nargs="*",
        default=[inputs.STDIN],
        metavar="FILE",
        help="a prompt, a request body, a log of them (JSON Lines), or PromptGroups; - for standard input, the default",
    )
    parser.add_argument("--as", dest="format", type=InputFormat, choices=tuple(InputFormat), help="what the files are")
    parser.add_argument("--tools", metavar="FILE", help="tool definitions of a prompt: a JSON list")
    parser.add_argument("--check", action="store_true", help="compare with spec.prompt.fingerprint of PromptGroups")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: %(default)s")
    parser.set_defaults(run=lambda arguments: _run(parser.prog, arguments))


def _run(prog: str, arguments: argparse.Namespace) -> int:
    found: list[Hashed] = []
    wrong = pinned = 0
    try:
        tools = _tools(arguments.tools)
        for name in arguments.files:
            for each in _hashes(name, arguments.format, tools):
                wrong += each.wrong
                pinned += each.pin is not None
                if arguments.output == "json":
                    found.append(each)
                else:
                    print(_line(each))
    except InputError as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 2
    if arguments.output == "json":
        print(json.dumps([_document(each) for each in found], indent=2))
    if not arguments.check:
        return 0
    if not pinned:
        print(
            f"{prog}: --check: no PromptGroup in it has spec.prompt.fingerprint, so nothing is checked", file=sys.stderr
        )
        return 2
    return 1 if wrong else 0


def _hashes(name: str, given: InputFormat | None, tools: str | None) -> Iterator[Hashed]:
    shown = inputs.shown(name)
    with inputs.opened(name, given) as content:
        if isinstance(content, InputText) and content.format is InputFormat.PROMPT:
            system = content.content.encode()
            yield Hashed(shown, hash_prefix(tools or "", system), len(system), len((tools or "").encode()))
            return
        if tools is not None:
            raise InputError(f"{shown}: it brings its own tools: leave --tools out, or say --as prompt")
        if isinstance(content, InputText):
            yield from _declared(shown, content.content)
            return
        for request in content:
            yield _sent(shown, request)


def _declared(shown: str, content: str) -> Iterator[Hashed]:
    try:
        found = manifest.prompts(content, "default")
    except manifest.ManifestError as error:
        raise InputError(f"{shown}: {error}") from None
    for each in found:
        prompt = each.text.prompt
        yield Hashed(
            f"{shown}: PromptGroup {each.key.name}",
            each.text.fingerprint,
            len(prompt.system.encode()),
            len(prompt.tools.encode()),
            pin=each.pin,
        )


def _sent(shown: str, request: InputRequest) -> Hashed:
    ask = request.ask
    if ask is None:
        raise InputError(f"{shown}:{request.line}: {request.problem}")
    system = ask.system.encode()
    if ask.kind is ApiKind.TEXT:
        left_out = "where the prompt ends and the input begins only a PromptGroup says"
    elif ask.has_system and not system:
        left_out = "system messages after the first message are not covered"
    else:
        left_out = ""
    return Hashed(
        f"{shown}:{request.line}", hash_prefix(ask.tools, system), len(system), len(ask.tools.encode()), left_out
    )


def _tools(name: str | None) -> str | None:
    if name is None:
        return None
    with inputs.opened(name, InputFormat.PROMPT) as content:
        assert isinstance(content, InputText)  # noqa: S101 - a prompt is read at once
        try:
            listed = json.loads(content.content)
            if not isinstance(listed, list):
                raise InputError(f"--tools {name}: not a JSON list of tool definitions")
            return canonical_tools(listed)
        except (ValueError, RecursionError):
            raise InputError(f"--tools {name}: not JSON") from None


def _line(hashed: Hashed) -> str:
    covers = f"system {hashed.system} bytes, " + (f"tools {hashed.tools} bytes" if hashed.tools else "no tools")
    notes = [f"; {hashed.left_out}"] if hashed.left_out else []
    if hashed.pin is not None:
        notes.append(f"; WRONG: pinned as {hashed.pin}" if hashed.wrong else "; pinned")
    return f"{hashed.fingerprint}  {hashed.name} ({covers}{''.join(notes)})"


def _document(hashed: Hashed) -> dict[str, object]:
    return {
        "name": hashed.name,
        "fingerprint": hashed.fingerprint,
        "systemBytes": hashed.system,
        "toolsBytes": hashed.tools,
        "pinned": hashed.pin,
    }
