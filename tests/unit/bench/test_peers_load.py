import asyncio
import itertools
import statistics
from dataclasses import replace

import pytest
import uvloop

from bench.peers import drive, mix, prose
from promptgroup_local.engine.answer import answer
from promptgroup_local.engine.chat import render
from promptgroup_local.engine.flags import Knobs, parse
from promptgroup_local.engine.server import serving
from promptgroup_local.engine.tokenizer import detokenize

RATE, UNTIL, SEED = 16.0, 60.0, 5


def shape(sessions):
    return [(s.began, s.group, [(t.sizes, t.output, t.think) for t in s.turns]) for s in sessions]


def test_a_seed_says_it_all() -> None:
    assert shape(mix.sessions(RATE, UNTIL, SEED)) == shape(mix.sessions(RATE, UNTIL, SEED))
    assert shape(mix.sessions(RATE, UNTIL, SEED)) != shape(mix.sessions(RATE, UNTIL, SEED + 1))


def test_sessions_come_in_order_and_none_begins_too_late() -> None:
    begun = [session.began for session in mix.sessions(RATE, UNTIL, SEED)]
    assert begun == sorted(begun)
    assert begun[-1] < UNTIL


@pytest.mark.heavy
def test_the_rate_is_there_from_the_beginning() -> None:
    """Counted as if answers took no time but two seconds: about the rate, in the first seconds and the last."""
    firsts, lasts = [], []
    for seed in range(20):
        times = []
        for session in mix.sessions(RATE, UNTIL, seed):
            pauses = itertools.accumulate(turn.think + 2.0 * (turn.number > 0) for turn in session.turns)
            times += [session.began + pause for pause in pauses]
        firsts.append(sum(time < 20 for time in times) / 20)
        lasts.append(sum(40 <= time < 60 for time in times) / 20)
    assert statistics.fmean(firsts) == pytest.approx(RATE, rel=0.1)
    assert statistics.fmean(lasts) == pytest.approx(RATE, rel=0.1)


def test_the_engine_counts_the_tokens_that_are_planned() -> None:
    turns = 0
    for session in mix.sessions(RATE, 5.0, SEED)[::10]:
        messages = [{"role": "system", "content": prose.system(session, SEED)}]
        for turn in session.turns:
            messages.append({"role": "user", "content": prose.message(turn, SEED)})
            prompt = render(messages)
            assert len(prompt.tokens) == turn.prompt
            if session.group >= 0:
                assert prompt.tier1 == session.tier1
            said = answer(prompt.tokens, turn.output, ignore_eos=True).tokens
            messages.append({"role": "assistant", "content": detokenize(said)})
            turns += 1
    assert turns > 10


@pytest.mark.slow
def test_groups_share_their_prompt_and_nothing_else() -> None:
    sessions = mix.sessions(RATE, UNTIL, SEED)
    prompts = {session.group: prose.system(session, SEED) for session in sessions}
    assert len(set(prompts.values())) == mix.GROUPS + 1
    assert all(prose.system(session, SEED) == prompts[session.group] for session in sessions)
    firsts = [prose.message(session.turns[0], SEED) for session in sessions]
    assert len(set(firsts)) == len(firsts)


def stand_in(error_rate: float = 0.0):
    flags = parse([drive.NAME, "--host=127.0.0.1", "--port=0", "--enable-prompt-tokens-details"])
    return serving(flags, Knobs(time_scale=0.0, startup=0.0, error_rate=error_rate))


def hurried(sessions):
    """The same without pauses."""
    for session in sessions:
        session.began = 0.0
        session.turns = [replace(turn, think=0.0) for turn in session.turns]
    return sessions


@pytest.mark.heavy
def test_sessions_are_played_to_their_ends_with_the_planned_lengths() -> None:
    async def test() -> None:
        sessions = hurried(mix.sessions(1.0, 4.0, SEED))
        async with stand_in() as url:
            outcomes = await drive.play(sessions, url, SEED, header="", until=60.0)
        assert len(outcomes) == sum(len(session.turns) for session in sessions) > 10
        assert [each.error for each in outcomes if each.error] == []
        assert all(each.prompt == each.planned and each.ttft > 0 for each in outcomes)

    uvloop.run(test())


def test_a_failed_turn_ends_its_session() -> None:
    async def test() -> None:
        sessions = hurried(mix.sessions(1.0, 4.0, SEED))
        async with stand_in(error_rate=1.0) as url:
            outcomes = await drive.play(sessions, url, SEED, header="", until=60.0)
        assert [each.error for each in outcomes] == ["status 500"] * len(sessions)

    uvloop.run(test())


def test_no_turn_begins_after_the_end_and_nobody_waits_for_it() -> None:
    async def test() -> None:
        sessions = hurried(mix.sessions(1.0, 4.0, SEED))
        for session in sessions:
            session.turns = [replace(turn, think=1000.0 if turn.number else 0.0) for turn in session.turns]
        async with stand_in() as url, asyncio.timeout(10):
            outcomes = await drive.play(sessions, url, SEED, header="", until=60.0)
        assert len(outcomes) == len(sessions)

    uvloop.run(test())


ROLE = b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
TEXT = b'data: {"choices":[{"delta":{"content":"one "},"finish_reason":null}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}\n\ndata: [DONE]\n\n'


def test_the_first_text_counts_not_the_first_event() -> None:
    assert not drive.has_text(ROLE)
    assert not drive.has_text(ROLE + TEXT[: TEXT.index(b"one")])
    assert drive.has_text(ROLE + TEXT)


def test_an_answer_is_put_together_from_its_events() -> None:
    assert drive.read(ROLE + TEXT + TEXT + USAGE) == ("one one ", 7)
