"""Flags of `promptgroup completion`."""

import argparse

from promptgroup_cli.base.errors import exit_statuses

SHELLS = ("bash", "zsh", "fish")


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
