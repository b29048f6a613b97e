"""The argument parser of all programs: a mistake is one line, with the word that was probably meant."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

USAGE = 2
"""Exit status of a wrong flag, as argparse's own."""


class Parser(argparse.ArgumentParser):
    """The parser of a program and of each of its commands."""

    _words: Sequence[str] = ()
    """The words that are being parsed."""

    def error(self, message: str) -> NoReturn:
        """Print one line and end the process with status 2.

        An unknown flag is reported before a missing one: it is probably the missing flag, misspelt.
        """
        message = self._unknown_flag() or message
        print(f"{self.prog}: {message}; `{self.prog} --help` lists the flags", file=sys.stderr)  # noqa: T201 - a mistake
        sys.exit(USAGE)

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Refuse unknown words here, where the subcommand is already parsed."""
        self._words = sys.argv[1:] if args is None else list(args)
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(self._unknown(unknown[0]))
        return parsed, unknown

    def _unknown_flag(self) -> str:
        """Return the error for the first unknown flag; empty when there is none."""
        for word in self._words:
            if word == "--" or (self._subparsers is not None and not word.startswith("-")):
                break  # the rest are no flags, or those of a command
            flag = word.partition("=")[0]
            if flag.startswith("--") and not any(
                option_string_action.startswith(flag) for option_string_action in self._option_string_actions
            ):
                return self._unknown(word)
        return ""

    def _unknown(self, word: str) -> str:
        return f"unknown argument {word!r}{did_you_mean(word.partition('=')[0], self._option_string_actions)}"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            meant = did_you_mean(str(value), choices)
            raise argparse.ArgumentError(action, f"{str(value)!r} is not known{meant} (known: {', '.join(choices)})")


def did_you_mean(word: str, options: Iterable[str]) -> str:
    """Return `, did you mean X?` for the option that is closest; empty when none is close."""
    import difflib  # noqa: PLC0415 - needed for mistakes only

    spelled = {item.lower(): item for item in options}
    close = difflib.get_close_matches(word.lower(), spelled, n=1)
    return f", did you mean {spelled[close[0]]}?" if close else ""
