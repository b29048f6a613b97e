import aiohttp
import pytest
import uvloop

from bench.peers import drive
from bench.prefix.clients import ANSWER, play
from bench.prefix.forms import FORMS
from bench.prefix.shapes import talks
from promptgroup_local.engine.flags import Knobs, parse
from promptgroup_local.engine.server import serving
from promptgroup_local.load.counters import measure, scrape

USAGE = {"stream_options": {"include_usage": True}}


def played(options, error_rate=0.0, shape="tasks"):
    async def test():
        flags = parse([drive.NAME, "--host=127.0.0.1", "--port=0", "--enable-prompt-tokens-details"])
        knobs = Knobs(time_scale=0.0, startup=0.0, error_rate=error_rate)
        async with serving(flags, knobs) as url, aiohttp.ClientSession() as http:
            return await play(http, url, talks(shape, 1)[:4], options)

    return uvloop.run(test())


def test_conversations_are_held_to_their_ends_and_their_usage_is_summed():
    seen = played(USAGE)
    assert (len(seen.seconds), seen.failed) == (4 * 4, 0)
    assert 0.7 < seen.cached / seen.prompt < 1
    assert seen.prompt > 16 * (700 + ANSWER)


def test_a_text_repeats_what_was_said_before():
    seen = played(USAGE, shape="transcripts")
    assert (len(seen.seconds), seen.failed) == (4 * 8, 0)
    grown = sum(2250 + turn * (250 + ANSWER) for turn in range(8))
    assert 4 * grown * 0.99 < seen.prompt < 4 * grown * 1.01
    assert seen.cached / seen.prompt > 0.85


@pytest.mark.parametrize("shape", ["tasks", "transcripts"])
@pytest.mark.parametrize("form", FORMS)
def test_all_forms_ask_the_same(form, shape):
    async def test():
        flags = parse([drive.NAME, "--host=127.0.0.1", "--port=0"])
        knobs = Knobs(time_scale=0.0, startup=0.0)
        async with serving(flags, knobs) as url, aiohttp.ClientSession() as http:
            before = await scrape([url])
            seen = await play(http, url, talks(shape, 1)[:4], form=FORMS[form])
            return seen, measure(before, await scrape([url]))

    seen, counted = uvloop.run(test())
    assert (len(seen.seconds), seen.failed) == (4 * (4 if shape == "tasks" else 8), 0)
    assert counted.hit_rate > (0.7 if shape == "tasks" else 0.8), "later turns repeat the earlier ones"


def test_without_usage_only_times_are_noted():
    seen = played({})
    assert len(seen.seconds) == 4 * 4
    assert (seen.prompt, seen.cached) == (0, 0)


def test_a_request_that_fails_ends_its_conversation():
    seen = played(USAGE, error_rate=1.0)
    assert (len(seen.seconds), seen.failed) == (0, 4)
