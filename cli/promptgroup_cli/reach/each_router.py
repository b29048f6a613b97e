"""Asks every router of a namespace the same, so that one that does not answer hides no other."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from promptgroup_cli.base.bounded_json import JsonError
from promptgroup_cli.base.errors import ReachError
from promptgroup_cli.reach.connect import Router

Answer = TypeVar("Answer")

ODD = (JsonError, ValueError, KeyError, TypeError, AttributeError, IndexError)
"""The errors of whoever reads an answer that is none of a router."""


def no_router(who: str) -> ReachError:
    """Return the error for an answer that is none of a router."""
    return ReachError(f"{who} does not answer as a router of this version does: is it an admin port (9090)?")


def ask_each(
    routers: Mapping[str, Router], read: Callable[[Router], Answer]
) -> tuple[dict[str, Answer], dict[str, ReachError]]:
    """Return the answers by router, and why the others gave none.

    Args:
        routers: the routers by name.
        read: asks one of them, and reads its answer; may raise what ODD lists.
    """
    answers: dict[str, Answer] = {}
    failed: dict[str, ReachError] = {}
    for name, request in routers.items():
        try:
            answers[name] = read(request)
        except ReachError as error:
            failed[name] = error
        except ODD:
            failed[name] = no_router(f"router {name}")
    return answers, failed


def heard(answers: Mapping[str, Answer], failed: Mapping[str, ReachError]) -> Mapping[str, Answer]:
    """Return the answers.

    Raises:
        ReachError: there is none; the first of the reasons.
    """
    if not answers and failed:
        raise next(iter(failed.values()))
    return answers
