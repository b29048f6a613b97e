"""What a caller learns of another's prompts by twenty ways: nothing with `isolation: Caller`, nearly all with `Group`.

docs/how-to/callers.md says the same. The ways go to real engines in tests/integration/test_real_vllm.py and
test_real_sglang.py, too, and `COMPAT_ENGINES` names real engines of the model `llama` for these tests.
"""

import pytest

from promptgroup_operator.engines.dialects.sglang import SGLANG
from promptgroup_operator.engines.dialects.vllm import VLLM
from support.crosscaller import RESPONSES, WAYS, all_learned, timed_pairs, within, world
from support.keys import KEY_A, KEY_B
from support.tables import SYSTEM
from support.wire import ask, get


def test_there_are_twenty_ways():
    assert len(WAYS) >= 20


@pytest.mark.heavy
@pytest.mark.parametrize("dialect", [VLLM, SGLANG], ids=["vLLM", "SGLang"])
@pytest.mark.parametrize("isolated", [True, False])
def test_no_way_tells_anything_of_callers_who_are_kept_apart_and_nearly_all_do_of_others(tmp_path, isolated, dialect):
    async def check():
        async with world(tmp_path, isolated=isolated, dialect=dialect) as it:
            found, again = await all_learned(it)
            assert again > 100  # one's own text is found
            if isolated:
                assert {name: tokens for name, tokens in found.items() if tokens > 0} == {}
            else:
                assert sum(tokens > 100 for tokens in found.values()) >= 15, found

    within(check())


def test_responses_of_another_caller_are_not_there(tmp_path):
    async def check():
        async with world(tmp_path, isolated=True) as it:
            body = {"model": "llama", "instructions": SYSTEM, "input": "mine", "max_output_tokens": 16, "store": True}
            answer = await it.send(KEY_A, body, path=RESPONSES)
            mine = answer.json["id"]
            more = body | {"previous_response_id": mine}
            assert (await it.send(KEY_B, more, path=RESPONSES)).status == 404
            for line in (f"{RESPONSES}/{mine}", f"{RESPONSES}/{mine}/input_items"):
                assert (await ask(it.router.port, get(line, f"Authorization: Bearer {KEY_B}"))).status == 404
            assert (await it.send(KEY_A, more, path=RESPONSES)).status == 200
            read = await ask(it.router.port, get(f"{RESPONSES}/{mine}", f"Authorization: Bearer {KEY_A}"))
            assert read.status == 200

    within(check())


def test_neither_pages_nor_errors_of_the_port_for_requests_tell_of_others(tmp_path):
    async def check():
        async with world(tmp_path, isolated=True) as it:
            await it.send(KEY_A, it.chat("hidden"))
            for path in ("/metrics", "/explain", "/table", "/unmatched", "/v1/models"):
                answer = await ask(it.router.port, get(path, f"Authorization: Bearer {KEY_B}"))
                assert b"hidden" not in answer.body
                assert (answer.status == 200) is (path == "/v1/models")
            answer = await it.send(KEY_B, {"model": "llama", "messages": 7})
            assert answer.status == 400
            assert b"hidden" not in answer.body
            page = await ask(it.router.admin_port, get("/metrics"))
            assert b"hidden" not in page.body
            assert it.salt_of_a.encode() not in page.body

    within(check())


@pytest.mark.slow
@pytest.mark.parametrize("isolated", [True, False])
def test_times_of_two_hundred_pairs_tell_nothing(tmp_path, isolated):
    async def check():
        async with world(tmp_path, isolated=isolated, time_scale=1.0) as it:
            chance = await timed_pairs(it, 200)
            assert chance > 1e-3 if isolated else chance < 1e-6

    within(check())
