"""`promptgroup completion SHELL`: print completion scripts, and answer shells and kubectl while somebody types.

A shell's script runs the program with `_ARGCOMPLETE` set (argcomplete's protocol); kubectl runs
`kubectl_complete-promptgroup WORD...` and reads cobra's: a completion a line, then `:DIRECTIVE`
(https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/).
"""

import argparse
import io
import os
import shlex
from collections.abc import Sequence

from promptgroup_cli.base.errors import ExitStatus, exit_statuses

SHELLS = ("bash", "zsh", "fish")
DEFAULT = ":0"
"""cobra's ShellCompDirectiveDefault: the shell offers files where there is nothing to complete."""

EXAMPLES = """\
  source <(promptgroup completion bash)                                    # in ~/.bashrc
  source <(promptgroup completion zsh)                                     # in ~/.zshrc, after compinit
  promptgroup completion fish > ~/.config/fish/completions/promptgroup.fish

`kubectl promptgroup` needs none of them: kubectl's own completion asks kubectl_complete-promptgroup.
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's description and flags."""
    parser.description = "Print the script by which a shell completes the commands and flags of `promptgroup`."
    parser.epilog = exit_statuses("the script was printed", "", EXAMPLES)
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    from argcomplete.shell_integration import shellcode  # noqa: PLC0415 - needed by no other command

    print(shellcode(["promptgroup"], shell=arguments.shell))
    return ExitStatus.OK


def answer_shell(parser: argparse.ArgumentParser) -> None:
    """Print completions and end the process, if a shell started it for that."""
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete  # noqa: PLC0415 - needed by no command

        argcomplete.autocomplete(parser, always_complete_options=False)


def answer_kubectl(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """Return the lines to print: a completion, a tab and a description each, then the directive.

    Args:
        parser: of the command line.
        words: those typed after `kubectl promptgroup`; the last one, which may be empty, is to be completed.
    """
    from argcomplete.completers import SuppressCompleter  # noqa: PLC0415 - needed by no command
    from argcomplete.finders import CompletionFinder  # noqa: PLC0415

    class Finder(CompletionFinder):
        def _init_debug_stream(self) -> None:
            """Leave file descriptor 9 alone: it is not a shell's here."""

    *typed, last = words or [""]
    line = f"{shlex.join([parser.prog, *typed])} {last}"
    requested = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_DFS": "\t",
        "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "",
    }
    result = io.StringIO()
    before = dict(os.environ)
    os.environ.update(requested)
    try:
        Finder()(
            parser,
            always_complete_options=False,
            output_stream=result,
            exit_method=lambda _: None,
            default_completer=SuppressCompleter(),
        )
    finally:
        os.environ.clear()
        os.environ.update(before)
    return [*result.getvalue().splitlines(), DEFAULT]
