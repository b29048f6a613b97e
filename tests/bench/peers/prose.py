"""Sessions as text: every stretch of tokens becomes words, so that the stand-in engine counts as many as are meant.

A token of the stand-in is four bytes of text, and here a word of three letters and a blank. Its chat template puts a
marker before and after each message, one in front of everything and one behind (`promptgroup_local.engine.chat`).
"""

import random

from promptgroup_research.simulator.turns import Session, Turn

OPENING = "You are an assistant of Example Ltd.    "
"""Begins every system prompt: 10 tokens, less than a block, so that it is never cached by itself. A routing table with
this for its only prompt puts all requests into one pool."""

OPENING_TOKENS = len(OPENING) // 4
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def words(count: int, seed: int, node: int) -> str:
    """So many tokens of text, the same for a node of a seed's load in every process."""
    draw = random.Random(f"{seed}/{node}")
    letters = draw.choices(_LETTERS, k=3 * count)
    return "".join(["".join(letters[at : at + 3]) + " " for at in range(0, 3 * count, 3)])


def system(session: Session, seed: int) -> str:
    """The system prompt of a session: its group's, or only the opening."""
    if session.group < 0:
        return OPENING
    # begin, role, end
    return OPENING + words(session.tier1 - OPENING_TOKENS - 3, seed, session.turns[0].nodes[0])


def message(turn: Turn, seed: int) -> str:
    """What the user says in a turn."""
    # role, end, the role of the answer; on later turns the end of the answer before; alone, also the system prompt
    overhead = 3 + (turn.number > 0) + (OPENING_TOKENS + 3 if turn.session.group < 0 else 0)
    return words(turn.sizes[-1] - overhead, seed, turn.nodes[-1])
