from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_operator.api.prompt_group import PlacementSpec
from promptgroup_operator.guests.copies import copies, placed, share
from promptgroup_operator.guests.host import replicas
from promptgroup_operator.load.guest_load import NO_CLIENTS
from support import builders
from support.guestmodel import GuestModel, guest_spec, host_pods

BOUNDS = PlacementSpec(min_replicas=1, max_replicas=4)


def test_a_busy_prompt_gets_more_replicas_and_an_idle_one_gives_them_back():
    assert copies(BOUNDS, 8, 1, 0.25) == 4
    assert copies(BOUNDS, 8, 4, 0.9) == 4
    assert copies(BOUNDS, 8, 4, 0.01) == 1


def test_the_number_stays_while_the_load_moves_a_little():
    assert copies(BOUNDS, 8, 2, 0.125) == 2
    assert copies(BOUNDS, 8, 2, 0.09) == 2
    assert copies(BOUNDS, 8, 2, 0.04) == 1


def test_what_is_not_known_changes_nothing():
    assert copies(BOUNDS, 8, None, None) == 1
    assert copies(BOUNDS, 8, 3, None) == 3
    assert copies(BOUNDS, 2, 3, None) == 2  # the host became smaller


@given(st.integers(1, 50), st.integers(1, 4), st.floats(0, 1))
def test_a_number_that_was_chosen_stays_at_the_same_load(replicas, standing, part):
    chosen = copies(BOUNDS, replicas, standing, part)
    assert 1 <= chosen <= min(4, replicas)
    assert copies(BOUNDS, replicas, chosen, part) == chosen


def test_work_is_what_engines_compute():
    guest = replace(NO_CLIENTS, prompt_tokens=1000, looked_up=1000, cached=900, answer_tokens=100)
    host = replace(NO_CLIENTS, prompt_tokens=2000, looked_up=2000, cached=1400, answer_tokens=200)
    assert share(guest, host) == pytest.approx(0.25)
    assert share(guest, NO_CLIENTS) is None
    assert share(None, host) is None
    assert share(host, guest) == 1.0  # read a moment apart


@pytest.mark.parametrize("looked_up", [0, 100])
def test_what_no_cache_is_known_to_have_is_computed(looked_up):
    guest = replace(NO_CLIENTS, prompt_tokens=100, looked_up=looked_up, cached=0)
    host = replace(guest, prompt_tokens=400)
    assert share(guest, host) == 0.25


def test_a_guest_grows_beside_its_load_and_keeps_the_slots_that_it_has():
    model = GuestModel(host_pods(["a", "b", "c", "d"]), spec=guest_spec(placement={"minReplicas": 1, "maxReplicas": 3}))
    model.share = 0.0
    model.settle()
    (first,) = model.ready()
    model.share = 0.3
    model.settle()
    assert len(model.ready()) == 3
    assert first in model.ready()
    model.share = 0.1
    model.settle()
    assert len(model.ready()) == 2


def test_a_placement_without_bounds_is_as_the_spec_says():
    model = GuestModel(host_pods(["a", "b", "c"]), spec=guest_spec(placement={"replicas": 2}))
    model.share = 0.9
    model.settle()
    assert len(model.ready()) == 2


def test_what_retires_is_not_the_number_that_stands():
    bounded = builders.group(placement={"minReplicas": 1, "maxReplicas": 4})
    serves = replace(builders.revision(), replicas=2, weight=100)
    retires = replace(builders.revision("another prompt"), replicas=4, weight=0)
    pool = replicas("pool", host_pods(["a", "b", "c", "d"]), {})
    assert placed(bounded, pool, [serves, retires], None).spec.replicas == 2
