"""Two real vLLM engines on CPU. Skipped where VLLM names no folder with venv/ and tiny/."""

import os

import pytest

from promptgroup_local import vllmdiagnosis

pytestmark = [pytest.mark.integration, pytest.mark.slow]

VLLM = os.environ.get("VLLM", "")


@pytest.mark.skipif(not VLLM, reason="VLLM names no folder with a real vLLM: see docs/research/real-vllm.md")
def test_conditions_say_what_is_done_to_real_engines() -> None:
    assert vllmdiagnosis.main([f"--vllm={VLLM}"]) == 0
