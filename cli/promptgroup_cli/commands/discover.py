"""`promptgroup discover`: list the prompts that deserve a group, and write a PromptGroup for one."""

import argparse
from contextlib import nullcontext
from pathlib import Path

from promptgroup_cli.base.cluster_choice import cluster_choice
from promptgroup_cli.base.errors import ExitStatus, InputError
from promptgroup_cli.reach.connect import ClusterConnection, routers_at
from promptgroup_cli.reach.discovered import ask_all, chosen, read_sample, router_samples
from promptgroup_cli.reach.files import STDIN
from promptgroup_cli.render import discover_output


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    with ClusterConnection(cluster_choice(arguments)) if arguments.router is None else nullcontext() as cluster:
        routers = cluster.routers(cluster.namespace) if cluster is not None else {}
        (shared, listed), silent = ask_all(routers or routers_at([arguments.router]))
    sample = None
    if arguments.sample is not None:
        sample = read_sample(arguments.sample, arguments.format, {str(prefix["hash"]) for prefix in shared})
    if arguments.write is not None:
        sample = sample if sample is not None else router_samples(listed)
        if not sample:
            raise InputError(
                "--write: these routers keep no text of prompts: give requests of yours with --sample FILE, or ask "
                "whoever installs the routers for --keep-samples"
            )
        found = chosen([*shared, *listed], sample, arguments.hash)
        _write(arguments.write, discover_output.manifest(arguments.name, found["model"], sample[found["hash"]]))
        return ExitStatus.OK
    if arguments.output == "json":
        print(discover_output.document(shared[: arguments.limit], listed[: arguments.limit], silent))
    else:
        if shared:
            print(discover_output.shared_table(shared[: arguments.limit], sample), end="\n\n")
        whole = sum(float(each["tokensPerSecond"]) for each in listed)
        print(discover_output.table(listed[: arguments.limit], whole, sample, silent))
    return ExitStatus.OK if shared or listed else ExitStatus.NEGATIVE


def _write(name: str, text: str) -> None:
    if name == STDIN:
        print(text, end="")
        return
    try:
        with Path(name).open("x", encoding="utf-8") as file:  # a file that is there was somebody's work
            file.write(text)
    except OSError as error:
        raise InputError(f"--write {name}: {_unwritable(name, error)}") from None
    print(f"wrote {name}")


def _unwritable(name: str, error: OSError) -> str:
    match error:
        case FileExistsError():
            return "it exists: name another file, or remove this one"
        case FileNotFoundError():
            return f"there is no folder {Path(name).parent.absolute()}: make it, or name a file in one that exists"
        case _:
            return error.strerror or str(error)
