import aiohttp
import uvloop

from bench.peers import drive
from bench.prefix.clients import ANSWER, play
from bench.prefix.shapes import talks
from promptgroup_local.engine.flags import Knobs, parse
from promptgroup_local.engine.server import serving

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


def test_without_usage_only_times_are_noted():
    seen = played({})
    assert len(seen.seconds) == 4 * 4
    assert (seen.prompt, seen.cached) == (0, 0)


def test_a_request_that_fails_ends_its_conversation():
    seen = played(USAGE, error_rate=1.0)
    assert (len(seen.seconds), seen.failed) == (0, 4)
