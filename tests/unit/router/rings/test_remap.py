import pytest
import xxhash

from promptgroup_contract.table import Policy, SlotState
from promptgroup_router.base.steps import at_once
from promptgroup_router.placement.balancer import Balancer
from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.health import Health
from promptgroup_router.rings.building import build_index
from promptgroup_router.rings.remap import remap_steps
from support.tables import group, revision, slot, table


def share(before, after):
    return at_once(remap_steps(build_index(table(group("a", before))), build_index(table(group("a", after))))).get(
        "chat/a"
    )


def test_nothing_moves_when_pods_are_replaced_in_their_slots():
    before, after = (revision(slots=tuple(slot(i, incarnation=life) for i in range(4))) for life in "xy")
    assert share(before, after) == 0


@pytest.mark.parametrize("count", [2, 4, 8])
def test_a_new_slot_moves_its_share(count):
    assert share(revision(slots=count), revision(slots=count + 1)) == pytest.approx(1 / (count + 1), abs=0.05)


def test_a_slot_that_is_away_moves_its_own_keys():
    away = (slot(0), slot(1), slot(2, SlotState.ABSENT), slot(3))
    assert share(revision(slots=4), revision(slots=away)) == pytest.approx(1 / 4, abs=0.05)


def test_new_groups_and_new_revisions_have_no_before():
    assert share(revision("old"), revision("new")) == 0
    assert at_once(remap_steps(build_index(table(group("a"))), build_index(table(group("b"))))) == {}


@pytest.mark.parametrize(("slots", "keys"), [(4, 1024), (128, 1024), (1024, 128), (8000, 64)])
def test_fewer_keys_are_looked_at_where_each_takes_longer(slots, keys):
    before = revision(slots=tuple(slot(index) for index in range(slots)))
    after = revision(slots=(slot(0, SlotState.ABSENT), *(slot(index) for index in range(1, slots))))
    views = [build_index(table(group("a", each))) for each in (before, after)]
    assert len(list(remap_steps(*views))) == keys + 1, "a step for each key, and one for the group"


@pytest.mark.heavy
@pytest.mark.parametrize("change", ["grow", "shrink", "lose one", "replace all"])
def test_what_is_predicted_is_what_happens_to_sessions(change):
    # placed by home alone, so that nothing but the table can move a session
    sessions = [xxhash.xxh3_64_intdigest(number.to_bytes(4, "little"), seed=9) for number in range(4000)]
    before = tuple(slot(index) for index in range(5))
    after = {
        "grow": (*before, slot(5)),
        "shrink": before[:4],
        "lose one": (*before[:2], slot(2, SlotState.ABSENT), *before[3:]),
        "replace all": tuple(slot(index, incarnation="b") for index in range(5)),
    }[change]
    balancer = Balancer(Health())
    views = [
        build_index(table(group("a", revision(slots=each), policy=Policy.BOUNDED_LOAD))) for each in (before, after)
    ]
    homes = []
    for view in views:
        balancer.install(view, 0.0)
        candidates = view.names["a"].revisions[0].candidates
        picks = []
        for session in sessions:
            picks.append(balancer.pick(candidates, Demand(session, 1), 0.0))
            balancer.placed.end(picks[-1], None, 0.0)
        homes.append(picks)
    observed = sum(pick.moved for pick in homes[1]) / len(sessions)
    predicted = at_once(remap_steps(*views))["chat/a"]
    assert observed == pytest.approx(predicted, abs=0.03)
    if change == "replace all":
        assert observed == predicted == 0
