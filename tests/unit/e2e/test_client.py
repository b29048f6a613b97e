import asyncio
import time

import pytest

from harness.client import Pace


def test_requests_are_due_at_a_steady_rate_whatever_became_of_those_before():
    async def turns():
        pace = Pace(1e6)
        return [await pace.turn() for _ in range(4)]

    first, *_, last = asyncio.run(turns())
    assert last - first == pytest.approx(3e-6, abs=1e-6)
    assert first <= time.monotonic()


def test_without_a_rate_a_request_is_due_at_once():
    before = time.monotonic()
    assert before <= asyncio.run(Pace(0).turn()) <= time.monotonic()
