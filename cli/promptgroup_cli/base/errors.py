"""Errors that end a command with one line on standard error, and the exit statuses of all commands."""

import enum


class ExitStatus(enum.IntEnum):
    """The meaning of an exit status, the same for every command."""

    OK = 0
    """Success."""
    NEGATIVE = 1
    """A check failed: a group is not Ready, a request would be refused or would wait, the API
    server would refuse the PromptGroup, no number of replicas keeps the target, there are findings, a pin is wrong, or
    a prompt is empty."""
    USAGE = 2
    """A flag, a file or a name is wrong, so that there is no answer. A kubeconfig that is missing or malformed, and a
    PromptGroup that does not exist, belong here."""
    UNREACHABLE = 3
    """The cluster, a router or Prometheus does not answer, or refuses the request."""
    INTERRUPTED = 130
    """The user pressed Ctrl-C: 128 plus SIGINT, as shells report it. `top` and `dashboard` then end with 0."""
    CLOSED_PIPE = 141
    """The reader of the output went away, as `head` does: 128 plus SIGPIPE, as shells report it."""


def exit_statuses(ok: str, negative: str, examples: str = "") -> str:
    """Return the end of a `--help`.

    Args:
        ok: meaning of status 0.
        negative: meaning of status 1; empty for commands that never answer no.
        examples: lines of examples, which are printed first.
    """
    head = f"examples:\n{examples}\n" if examples else ""
    one = f"  1  {negative}\n" if negative else ""
    return f"""{head}exit status:
  0  {ok}
{one}  2  a flag, a file or a name is wrong
  3  the cluster, a router or Prometheus does not answer, or refuses the request
"""


class CommandError(Exception):
    """An error of a command. The message is one line that names the fault, and the way out."""

    status = ExitStatus.USAGE


class RefusedError(CommandError):
    """An answer that is no, with its reason."""

    status = ExitStatus.NEGATIVE


class InputError(CommandError):
    """A file or a flag cannot be used."""


class ReachError(CommandError):
    """A cluster, a router or Prometheus does not answer, or refuses the request."""

    status = ExitStatus.UNREACHABLE
