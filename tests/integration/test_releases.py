"""What clients meet while a group gets another prompt."""

from collections.abc import Iterator

import pytest

from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import wait_for
from support.groups import PROMPTS
from support.life import Life, lives, living, unharmed

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def running(cluster: LocalCluster) -> Iterator[Life]:
    with living(cluster, "releases") as life:
        yield life


@pytest.fixture
def life(running: Life) -> Life:
    """The group at rest, whatever the test before made of it."""
    running.kube.apply(lives())
    running.rolled()
    return running


def test_a_new_prompt_is_for_new_sessions_and_running_ones_stay_where_they_are(life: Life) -> None:
    old = life.revision()
    with life.load.watched() as seen:
        life.kube.apply(lives(PROMPTS["h"]))
        wait_for(lambda: True if life.revision() != old else None, "the release")
        life.rolled()
        new = life.revision()
        wait_for(lambda: True if life.load.served(f"/{new}/") else None, "a session on the new prompt")
    assert unharmed(seen)
    assert seen.changed_revision() == 0
