"""Run `promptgroup COMMAND`, which kubectl runs as `kubectl promptgroup COMMAND`."""

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from promptgroup_cli.base.errors import CommandError, ExitStatus, exit_statuses
from promptgroup_cli.base.flags import VersionAction
from promptgroup_cli.base.terminal import plain_streams
from promptgroup_contract.command_line import Parser

PLUGIN = "kubectl-promptgroup"
"""Name of the file that kubectl runs for `kubectl promptgroup`."""

UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})
"""Errors of a standard output that cannot be written: a full disk, a quota, a limit of file size, a broken device, and
one that is closed (`>&-`) or open for reading only."""

COMMANDS = {
    "status": "show a group's revisions and slots, and what it waits for",
    "top": "show requests, hit rate, first tokens and load of each group, live",
    "dashboard": "serve a page that shows the groups of a namespace, live",
    "usage": "show the tokens of each caller in a period",
    "explain": "explain where a request would go",
    "responses": "purge answers that routers keep, or calibrate a semantic cache",
    "adopt": "make the manifest of a host from a Deployment of vLLM or SGLang",
    "plan": "show what would be done about a PromptGroup, without a cluster",
    "size": "compute how many replicas a load needs",
    "probe": "measure the prefill rate and the KV tier of a running replica",
    "lint": "find what breaks prefix caching in prompts and logs",
    "discover": "list the prompts that deserve a group, and write one",
    "fingerprint": "print the fingerprint of a prompt, a request or a PromptGroup",
    "completion": "print a shell's completion script",
}
"""Command, which is also its module or its folder in `commands`, and its line in `--help`."""


def main() -> int:
    """Run the command line and return its exit status."""
    if sys.stderr is None:  # closed (`2>&-`): print() would write its messages among the output
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - for the life of the process
    words = _words()
    parser = build_parser("kubectl promptgroup" if Path(sys.argv[0]).name == PLUGIN else "promptgroup", words)
    if sys.stdout is None:
        return _unwritable(parser.prog, os.strerror(errno.EBADF))
    with plain_streams():
        return _main(parser, words)


def _main(parser: argparse.ArgumentParser, words: list[str]) -> int:
    try:
        try:
            if "_ARGCOMPLETE" in os.environ:
                from promptgroup_cli.commands import completion  # noqa: PLC0415 - for shells, hardly for people

                completion.answer_shell(parser)
            return _run(parser.prog, parser.parse_args(words))
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        _discard()
        return ExitStatus.CLOSED_PIPE
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        _discard()
        return _unwritable(parser.prog, error.strerror)


def _unwritable(prog: str, reason: str | None) -> int:
    print(f"{prog}: cannot write the output: {reason}", file=sys.stderr)
    return ExitStatus.USAGE


def _discard() -> None:
    """Discard the buffer of standard output, so that the interpreter does not try again to write it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def kubectl_complete() -> int:
    """Run `kubectl_complete-promptgroup`, which kubectl calls for the words after `kubectl promptgroup`."""
    from promptgroup_cli.commands import completion  # noqa: PLC0415 - as above

    words = sys.argv[1:]
    print("\n".join(completion.answer_kubectl(build_parser("promptgroup", words), words)))
    return ExitStatus.OK


def build_parser(prog: str, words: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser of the command line.

    Args:
        prog: name of the program in messages.
        words: of the command line; only the command that they name is imported.
    """
    parser = Parser(
        prog=prog,
        description="Plan, size and inspect PromptGroups, and find what breaks prefix caching.",
        epilog=exit_statuses("success", "a check failed"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=VersionAction)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    named = next((word for word in words if word in COMMANDS), None)
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, formatter_class=argparse.RawDescriptionHelpFormatter)
        command.add_argument("--version", action=VersionAction)
        if name == named:
            importlib.import_module(f"promptgroup_cli.commands.{name}").add(command)
    return parser


def _words() -> list[str]:
    """Return the words of the command line; while a shell completes it, those that are typed so far."""
    return os.environ["COMP_LINE"].split()[1:] if "COMP_LINE" in os.environ else as_flags(sys.argv[1:])


def as_flags(words: list[str]) -> list[str]:
    """Return the words with `help [COMMAND]` and `version`, as other programs spell them, as flags."""
    match words:
        case ["help", *rest]:
            return [*rest, "--help"]
        case ["version", *rest]:
            return ["--version", *rest]
        case _:
            return words


def _run(prog: str, arguments: argparse.Namespace) -> int:
    try:
        command = importlib.import_module(f"promptgroup_cli.commands.{arguments.command}")
        status: int = command.run(arguments)
    except CommandError as error:
        print(f"{prog} {arguments.command}: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        return ExitStatus.INTERRUPTED
    return status


if __name__ == "__main__":
    sys.exit(main())
