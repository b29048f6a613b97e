"""`python -m promptgroup_local.load --url URL ... --metrics URL ...`: drive sessions, print one table."""

import argparse
import sys

import aiohttp
import uvloop
from rich.console import Console

from promptgroup_local.load.client import Target, drive
from promptgroup_local.load.counters import measure, scrape
from promptgroup_local.load.prompts import TASKS
from promptgroup_local.load.report import comparison
from promptgroup_local.load.summary import Summary, summarise
from promptgroup_local.load.workload import conversations, sessions, tasks


def main() -> int:
    """Run once; the exit status is 1 when a request failed."""
    args = _parser().parse_args()
    try:
        summary = uvloop.run(_run(args))
    except (aiohttp.ClientError, TimeoutError) as error:
        print(f"error: no metrics from the engines: {type(error).__name__} {error}", file=sys.stderr)
        return 2
    Console().print(comparison([summary]))
    return 1 if summary.failures else 0


async def _run(args: argparse.Namespace) -> Summary:
    of = tasks(args.task or TASKS)
    target = Target(
        urls=args.url,
        model=args.model,
        groups={task.name: args.by_name for task in of} if args.by_name else {},
        session_header=args.session_header,
    )
    before = await scrape(args.metrics)
    drawn = conversations(sessions(of, args.sessions, args.seed))
    outcomes = await drive(drawn, target, concurrency=args.concurrency)
    measured = measure(before, await scrape(args.metrics))
    return summarise(f"seed {args.seed}", outcomes, measured)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m promptgroup_local.load", description=__doc__)
    parser.add_argument("--url", action="append", required=True, help="base URL of a router or an engine; repeatable")
    parser.add_argument("--metrics", action="append", required=True, help="base URL of an engine; repeatable")
    parser.add_argument("--model", default="meta-llama/Llama-3.1-8B-Instruct")
    parser.add_argument("--sessions", type=_count, default=60)
    parser.add_argument("--concurrency", type=_count, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--task", action="append", choices=TASKS, help="only this task; repeatable")
    parser.add_argument("--by-name", metavar="GROUP", default="", help="name the group and bring no system prompt")
    parser.add_argument("--session-header", metavar="NAME", default="", help="send the session's id in this header")
    return parser


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
