"""What clients meet while a group gets another prompt."""

from typing import Any

import pytest

from promptgroup_local.kubectl import wait_for
from support.groups import PROMPTS
from support.life import GROUP, Life, lives, unharmed
from support.load import Seen

pytestmark = pytest.mark.integration

CANARY = {"steps": [{"weight": 50, "pause": "5s"}], "maxSurge": 9}
"""One step, which the judge ends as soon as it has seen enough; room for the prompts of the tests before."""
TOLERANT = {"minRequests": 20, "maxTtftRisePercent": 300, "maxHitRateDropPercent": 50}
"""For engines that do alike, on a machine that others use."""


@pytest.fixture
def life(living_group: Life) -> Life:
    """The group on the prompt that the test before left it with: each releases another on top."""
    return living_group


def test_a_new_prompt_is_for_new_sessions_and_running_ones_stay_where_they_are(life: Life) -> None:
    old = life.revision()
    with life.load.watched() as seen:
        life.kube.apply(lives(PROMPTS["h"], rollout={"maxSurge": 9}))
        wait_for(lambda: True if life.revision() != old else None, "the release")
        life.rolled()
        new = life.revision()
        wait_for(lambda: True if life.load.served(f"/{new}/") else None, "a session on the new prompt")
    assert unharmed(seen)
    assert seen.changed_revision() == 0


def test_a_canary_that_does_as_well_is_promoted(life: Life) -> None:
    old = life.revision()
    shares: set[int] = set()
    with life.load.watched() as seen:
        life.kube.apply(lives(PROMPTS["a"], rollout={**CANARY, "judge": TOLERANT}))
        wait_for(lambda: True if life.revision() != old else None, "the release")
        new = life.revision()

        def promoted() -> bool | None:
            shares.add(life.weights().get(new, 0))
            return True if shares >= {100} else None

        wait_for(promoted, "the promotion", lambda: life.kube.get("promptgroup", GROUP))
        life.rolled()
    assert 50 in shares
    assert unharmed(seen)
    assert seen.changed_revision() == 0


def rolled_back(life: Life, change: dict[str, Any]) -> tuple[Seen, dict[str, Any]]:
    """Release what the judge refuses; returns what clients saw until then, and the condition that tells why."""
    refused = life.revision()
    (old,) = [revision for revision, weight in life.weights().items() if weight]
    before = life.pods(old)
    with life.load.watched() as seen:
        life.kube.apply(change)
        wait_for(lambda: True if life.revision() != refused else None, "the release")
        condition = life.kube.wait_condition(GROUP, "Degraded", "True", "RolledBack")
        wait_for(lambda: True if life.weights()[old] == 100 else None, "the old revision to have all", life.weights)
    assert before.items() <= life.pods(old).items()
    assert seen.changed_revision() == 0
    assert seen.cold == 0
    return seen, condition


def test_a_canary_on_slower_engines_is_rolled_back(life: Life) -> None:
    judge = {**TOLERANT, "maxTtftRisePercent": 100}
    slow = {"STANDIN_PREFILL_TOKENS_PER_SECOND": "300", "STANDIN_STEP_MS": "150"}
    seen, condition = rolled_back(life, lives(PROMPTS["b"], env=slow, rollout={**CANARY, "judge": judge}))
    assert "time to first token" in condition["message"]
    assert unharmed(seen)


def test_a_canary_that_answers_with_errors_is_rolled_back(life: Life) -> None:
    rollout = {**CANARY, "judge": TOLERANT}
    seen, condition = rolled_back(life, lives(PROMPTS["c"], env={"STANDIN_ERROR_RATE": "0.4"}, rollout=rollout))
    assert "of requests failed" in condition["message"]
    assert set(seen.failed) | set(seen.cut) == {"status 500"}
