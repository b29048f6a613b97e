"""System prompts of three tasks: prose of 1,500 to 2,500 tokens, the same text on every machine.

Real prompts of this length are an opening that says who the assistant is and long lists of rules. The rules here are
composed of each task's own words; the openings differ from their first sentence on, so that the tasks share no
prefix.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass

RULES_A_SECTION = 11
"""Makes 1,500 to 2,500 tokens together with the openings."""


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    opening: str
    sections: tuple[str, ...]
    situations: tuple[str, ...]
    actions: tuple[str, ...]
    reasons: tuple[str, ...]


_TASKS: Mapping[str, _Vocabulary] = {
    "summarise": _Vocabulary(
        opening=(
            "Summaries are what you are here for: a reader hands you a report, a thread or a transcript and has two "
            "minutes to learn what is in it. You write for people who decide on the strength of your text, so every "
            "sentence must be supported by the source and nothing that would change a decision may be left out."
        ),
        sections=("Faithfulness", "Length and form", "Figures and names", "Sources that disagree"),
        situations=(
            "the source is longer than ten pages",
            "two passages contradict each other",
            "a figure appears without its unit",
            "the author marks a passage as an opinion",
            "the text quotes somebody at length",
            "the reader asks for a shorter version",
            "a table holds the main result",
            "the conclusion is missing",
            "a date is given relative to another event",
            "the source is a transcript with several speakers",
        ),
        actions=(
            "state the finding first and the evidence in the sentence after it",
            "keep the wording of the commitment and name who made it",
            "give both values, each with the place where it stands",
            "leave out the anecdote and keep the rule that it illustrates",
            "write one paragraph for each decision that is asked of the reader",
            "say plainly that the source does not answer the question",
            "round to the precision that the source itself uses",
            "put what is still open at the end, under a heading of its own",
        ),
        reasons=(
            "because the reader cannot check it against the original",
            "since a missing qualifier turns a guess into a promise",
            "so that two summaries of one source never disagree",
            "because numbers are what gets quoted in the next meeting",
            "so that nobody needs to open the attachment",
        ),
    ),
    "code": _Vocabulary(
        opening=(
            "You are a senior software engineer who works inside a large repository together with its maintainers. "
            "You read before you write, change as little as the task allows, and leave every file easier to follow "
            "than it was. Answers contain complete, runnable code together with the tests that prove it."
        ),
        sections=("Before the change", "The change", "Tests", "Errors and limits", "The description"),
        situations=(
            "a function has more than one reason to change",
            "the request names a file that does not exist",
            "an interface is used by code outside the repository",
            "an error could be swallowed on the way up",
            "the change touches data that is already stored",
            "a dependency offers the same function",
            "two threads may reach the same state",
            "the input comes from the network",
            "a test fails only now and then",
            "the fix is simpler in the caller",
        ),
        actions=(
            "write the failing test first and show its output",
            "keep the signature and add a second function beside it",
            "name the limit as a constant and say where it comes from",
            "return a value that says what happened in place of a flag",
            "validate once at the edge and trust the value inside",
            "propose the smaller change and list what it leaves open",
            "move the decision into a function without side effects",
            "stop and ask one question, with the two answers you expect",
        ),
        reasons=(
            "because the next reader has only the diff",
            "since a retry must not repeat the effect",
            "so that the failure is found by the test and not by a user",
            "because the older release still runs beside the new one",
            "so that reverting it is a single step",
        ),
    ),
    "write": _Vocabulary(
        opening=(
            "Tell stories, letters and scenes in the voice that the person asks for, and never in the voice of a "
            "machine that describes its own work. You are a patient co-author with a good ear: the person owns the "
            "plot, the characters and the last word, and you bring rhythm, images and the courage to cut."
        ),
        sections=("Voice", "Scene and dialogue", "Revision", "Working together"),
        situations=(
            "a character speaks for longer than three sentences",
            "the draft explains what the scene already shows",
            "the person changes the point of view halfway",
            "a chapter ends without a question",
            "the text is meant to be read aloud",
            "a name or a place returns after a long absence",
            "the mood of the scene and the weather agree too well",
            "the person asks for something funnier",
            "a letter must refuse without hurting",
            "the first line does not carry the reader into the second",
        ),
        actions=(
            "begin as late in the scene as the reader can bear",
            "let an object say what nobody in the room will say",
            "offer two versions that differ in one deliberate way",
            "break the sentence where a speaker would take breath",
            "keep the odd word and cut the three that excuse it",
            "return to an image from the opening and turn it",
            "give the reply to the person who has most to lose",
            "mark the cut with a line and explain it below the text",
        ),
        reasons=(
            "because readers forgive confusion sooner than boredom",
            "since the ear notices what the eye forgives",
            "so that the person recognises the text as their own",
            "because a promise in the first act is a debt",
            "so that the silence after it can be heard",
        ),
    ),
}

TASKS = tuple(_TASKS)
"""The tasks' names."""


def system_prompt(task: str, release: int = 1) -> str:
    """A task's system prompt; another release keeps the opening and has other rules, as an edited prompt does.

    Raises:
        KeyError: no task of that name; `TASKS` lists them.
    """
    words = _TASKS[task]
    draw = random.Random(f"{task}/{release}")  # noqa: S311 — a workload, no secret
    lines = [words.opening]
    for section in words.sections:
        lines.append(f"\n## {section}")
        for number in range(1, RULES_A_SECTION + 1):
            situation, action = draw.choice(words.situations), draw.choice(words.actions)
            lines.append(f"{number}. When {situation}, {action}, {draw.choice(words.reasons)}.")
    return "\n".join(lines) + "\n"
