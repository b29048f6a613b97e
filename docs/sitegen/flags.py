"""The programs' own argument parsers → tables of flags, environment variables and commands."""

import argparse
import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from unittest.mock import patch

import promptgroup_operator.__main__
import promptgroup_picker.settings
import promptgroup_router.base.settings
from promptgroup_cli.__main__ import COMMANDS, build_parser
from sitegen.tables import sentence, table


class _Captured(Exception):  # noqa: N818 - carries a parser out of a program, no error
    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__()
        self.parser = parser


def _capture(parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
    raise _Captured(parser)


def captured(start: Callable[[], object], program: str, *arguments: str) -> argparse.ArgumentParser:
    """Return the parser that a program builds before it parses its arguments.

    The environment's own settings are left out, so that defaults are those of the code.
    """
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PROMPTGROUP_")}
    with (
        patch.dict(os.environ, clean, clear=True),
        patch.object(sys, "argv", [program, *arguments]),
        patch.object(argparse.ArgumentParser, "parse_args", _capture),
        patch.object(argparse.ArgumentParser, "parse_known_args", _capture),
        contextlib.suppress(SystemExit),
    ):
        try:
            start()
        except _Captured as found:
            return found.parser
    raise AssertionError(f"{program} parsed no arguments")


def _subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def operator_parser() -> argparse.ArgumentParser:
    """Return the parser of `promptgroup-operator run`."""
    parser = captured(promptgroup_operator.__main__.main, "promptgroup-operator", "run")
    return _subcommands(parser).get("run", parser)


def router_parser() -> argparse.ArgumentParser:
    """Return the parser of `promptgroup-router`."""
    return captured(lambda: promptgroup_router.base.settings.parse([]), "promptgroup-router")


def picker_parser() -> argparse.ArgumentParser:
    """Return the parser of `promptgroup-picker`."""
    return captured(lambda: promptgroup_picker.settings.parse([]), "promptgroup-picker")


def command_parsers() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of each command of `promptgroup`, in the order in which help lists them."""
    return {name: _subcommands(build_parser("promptgroup", [name]))[name] for name in COMMANDS}


def options(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the flags of a parser, `--help` and `--version` left out."""
    for action in parser._actions:
        if action.option_strings and not isinstance(action, argparse._HelpAction | argparse._VersionAction):
            yield action


def operator() -> str:
    """Return the flags of the operator."""
    return _settings(operator_parser(), "PROMPTGROUP_OPERATOR_")


def router() -> str:
    """Return the flags of the router, by their groups."""
    return _settings(router_parser(), "PROMPTGROUP_ROUTER_")


def picker() -> str:
    """Return the flags of the picker, by their groups."""
    return _settings(picker_parser(), "PROMPTGROUP_PICKER_")


def _settings(parser: argparse.ArgumentParser, prefix: str) -> str:
    parts = []
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if action in set(options(parser))]
        if not actions:
            continue
        rows = [
            [
                f"`{action.option_strings[-1]}`" + _metavar(action),
                f"`{prefix}{action.dest.upper()}`",
                _default(action),
                sentence(_help(action)),
            ]
            for action in actions
        ]
        title = f"**{sentence(group.title or '').removesuffix('.')}**\n\n" if len(parser._action_groups) > 3 else ""
        parts.append(title + table(["Flag", "Environment variable", "Default", "Description"], rows))
    return "\n".join(parts)


def commands() -> str:
    """Return a section for each command of `promptgroup`: what it does, its arguments, flags and notes."""
    parts = []
    for name, parser in command_parsers().items():
        places = [action for action in parser._actions if not action.option_strings]
        usage = " ".join(["promptgroup", name, *(_place(action) for action in places), "[flags]"])
        rows = [[f"`{action.metavar or action.dest}`", "", sentence(_help(action))] for action in places]
        rows += [
            [
                ", ".join(f"`{option_string}`" for option_string in action.option_strings) + _metavar(action),
                _default(action),
                sentence(_help(action)),
            ]
            for action in options(parser)
        ]
        note = f"\n```text\n{parser.epilog.strip()}\n```\n" if parser.epilog else ""
        text = sentence(parser.description or COMMANDS[name])
        parts.append(
            f"## `promptgroup {name}`\n\n{text}\n\n```text\n{usage}\n```\n\n"
            + table(["Argument or flag", "Default", "Description"], rows)
            + note
        )
    return "\n".join(parts)


def _place(action: argparse.Action) -> str:
    name = str(action.metavar or action.dest)
    return {"?": f"[{name}]", "*": f"[{name} ...]", "+": f"{name} [{name} ...]"}.get(str(action.nargs), name)


def _metavar(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if action.choices and action.metavar is None:
        return f" `{'|'.join(str(choice) for choice in action.choices)}`"
    return f" `{action.metavar or action.dest.upper()}`"


def _help(action: argparse.Action) -> str:
    text = action.help or ""
    if _default(action):  # it has a column of its own
        text = re.sub(r"[;,]? *\(?default: (%\(default\)s|\w+)\)?$", "", text)
    return text.replace("%(default)s", str(action.default)).replace("%%", "%")


def _default(action: argparse.Action) -> str:
    if action.default in (None, "", False, argparse.SUPPRESS) or action.nargs == 0:
        return ""
    return f"`{action.default}`"
