"""Sends the same request to every router of a namespace; one that does not answer does not affect the others."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from promptgroup_cli.base.bounded_json import JsonError
from promptgroup_cli.base.errors import ReachError
from promptgroup_cli.reach.connect import Router

Answer = TypeVar("Answer")

ODD = (JsonError, ValueError, KeyError, TypeError, AttributeError, IndexError)
"""The errors of reading an answer that is not a router's."""


def no_router(who: str) -> ReachError:
    """Return the error for an answer that is none of a router."""
    return ReachError(f"{who} does not answer as a router of this version does: is it an admin port (9090)?")


def ask_each(
    routers: Mapping[str, Router], read: Callable[[Router], Answer]
) -> tuple[dict[str, Answer], dict[str, ReachError]]:
    """Return the answers by router, and the errors of the others.

    Args:
        routers: the routers by name.
        read: queries one router, and reads its answer; may raise the errors in ODD.
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
