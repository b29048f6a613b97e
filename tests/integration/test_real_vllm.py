"""Real vLLM engines on CPU. Skipped where VLLM names no folder with venv/ and tiny/."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from promptgroup_local.real import diagnosis
from promptgroup_local.real.vllm import VLLM
from support.crosscaller import all_learned, timed_pairs, within, world
from support.realengines import marks, named, serving

SECONDS = 1500.0
"""Longest time of 600 prompts on two cores that have other work."""
WORDS = 60
"""Words of a text: some ten blocks."""

pytestmark = marks(VLLM)


def test_conditions_say_what_is_done_to_real_engines() -> None:
    assert diagnosis.main([f"--vllm={named('VLLM')}"]) == 0


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(VLLM, tmp_path_factory.mktemp("vllm") / "log") as address:
        yield address


@pytest.mark.parametrize("isolated", [True, False])
def test_no_way_tells_anything_of_callers_who_are_kept_apart(tmp_path: Path, engine: str, isolated: bool) -> None:
    async def check() -> None:
        async with world(tmp_path, isolated=isolated, engine=engine, words=WORDS) as it:
            found, again = await all_learned(it)
            print(found, "own:", again)  # noqa: T201 - shown by pytest -s
            assert again > 100
            if isolated:
                assert {name: tokens for name, tokens in found.items() if tokens > 0} == {}
            else:
                assert sum(tokens > 100 for tokens in found.values()) >= 15, found

    within(check(), SECONDS)


@pytest.mark.parametrize(("isolated", "pairs"), [(True, 200), (False, 40)])
def test_times_tell_nothing_of_callers_who_are_kept_apart(
    tmp_path: Path, engine: str, isolated: bool, pairs: int
) -> None:
    async def check() -> None:
        async with world(tmp_path, isolated=isolated, engine=engine, words=WORDS) as it:
            chance = await timed_pairs(it, pairs)
            print(f"{pairs} pairs, isolated {isolated}: p = {chance:.2g}")  # noqa: T201
            assert chance > 1e-3 if isolated else chance < 1e-6

    within(check(), SECONDS)
