"""The actions for one request after an event, as the decisions return them."""

import enum
from dataclasses import dataclass
from typing import Literal

from promptgroup_router.base.errors import ApiError
from promptgroup_router.rings.index import Member


@dataclass(slots=True)
class Send:
    """Send the request to this member."""

    member: Member
    fresh: bool = False
    """True to open a new connection instead of using a pooled one."""


@dataclass(slots=True)
class Refuse:
    """Answer the client with an error."""

    error: ApiError


class Action(enum.Enum):
    """Actions without a value."""

    WAIT = "wait in the admission queue until a replica has room for the session"
    RELAY = "relay the answer to the client"
    CUT = "end the client's answer, which is not whole"


Begun = Send | Refuse | Literal[Action.WAIT]
"""Actions for a request that no replica has."""
Answered = Send | Literal[Action.WAIT, Action.RELAY]
"""Actions for the head of an answer."""
Failed = Begun | Literal[Action.CUT]
"""Actions for a try that failed."""
