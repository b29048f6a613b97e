"""`promptgroup completion SHELL`, and what shells and kubectl ask while somebody types.

A shell's script runs the program with `_ARGCOMPLETE` set (argcomplete's protocol); kubectl runs
`kubectl_complete-promptgroup WORD...` and reads cobra's: a completion a line, then `:DIRECTIVE`
(https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/).
"""

import argparse
import io
import os
import shlex
from collections.abc import Sequence

SHELLS = ("bash", "zsh", "fish")

DEFAULT = ":0"
"""cobra's ShellCompDirectiveDefault: where there is nothing to complete, the shell offers files."""

EXAMPLE = """\
examples:
  source <(promptgroup completion bash)                                    # in ~/.bashrc
  source <(promptgroup completion zsh)                                     # in ~/.zshrc, after compinit
  promptgroup completion fish > ~/.config/fish/completions/promptgroup.fish

`kubectl promptgroup` needs none of them: kubectl's own completion asks kubectl_complete-promptgroup.
"""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command and its flags."""
    parser = commands.add_parser(
        "completion",
        help="print a shell's completion script",
        description="Print the script by which a shell completes commands and flags of `promptgroup`.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode  # noqa: PLC0415 - needed by no other command

    print(shellcode(["promptgroup"], shell=arguments.shell))
    return 0


def answer_shell(parser: argparse.ArgumentParser) -> None:
    """Print completions and end the process, when it was started for that."""
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete  # noqa: PLC0415 - needed by no command

        argcomplete.autocomplete(parser, always_complete_options=False)


def answer_kubectl(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """Lines to print: completion, tab and description each, then the directive.

    Args:
        parser: of the command line.
        words: what is typed after `kubectl promptgroup`; the last one, which may be empty, is to be completed.
    """
    from argcomplete.completers import SuppressCompleter  # noqa: PLC0415 - needed by no command
    from argcomplete.finders import CompletionFinder  # noqa: PLC0415

    class Finder(CompletionFinder):
        def _init_debug_stream(self) -> None:
            """Leave file descriptor 9 alone: it is not a shell's here."""

    *typed, last = words or [""]
    line = f"{shlex.join([parser.prog, *typed])} {last}"
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_DFS": "\t",
        "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "",
    }
    found = io.StringIO()
    before = dict(os.environ)
    os.environ.update(asked)
    try:
        Finder()(
            parser,
            always_complete_options=False,
            output_stream=found,
            exit_method=lambda _: None,
            default_completer=SuppressCompleter(),
        )
    finally:
        os.environ.clear()
        os.environ.update(before)
    return [*found.getvalue().splitlines(), DEFAULT]
