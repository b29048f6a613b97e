"""Groups whose requests a balancer places, and the demands of their sessions."""

from promptgroup_contract.table import Engine, Policy, Sharing
from promptgroup_router.placement.balancer import Balancer
from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.health import Health
from promptgroup_router.rings.building import build_index
from support.tables import group, revision, slot, table


def opening(session):
    """The first turn of a session."""
    return Demand(session=session, prefix=11, prompt=3000, tier1=2000)


def following(session):
    """A later turn of it."""
    return Demand(session=session, prefix=11, prompt=3400, tier1=2000, history=3150, turn=3)


DEMAND, NEXT = opening(7), following(7)


ENGINE = Engine("one", kv_tokens=100_000, prefill_rate=10_000)


def view_with(slots=3, policy=Policy.EXPECTED_TTFT, incarnations=None):
    held = tuple(slot(index, incarnation=(incarnations or {}).get(index, "a")) for index in range(slots))
    return build_index(table(group("a", revision(slots=held, engine=ENGINE), policy=policy)))


def served(slots=3, policy=Policy.EXPECTED_TTFT, health=None):
    view = view_with(slots, policy)
    balancer = Balancer(health or Health())
    balancer.install(view, 0.0)
    return view.names["a"].revisions[0].candidates, balancer


def others(candidates, member):
    return [each.id for each in candidates.ready if each is not member]


def pair(slots=3):
    candidates, one = served(slots)
    two = Balancer(Health())
    two.install(view_with(slots), 0.0)
    return candidates, one, two


MARKS = [101, 102, 103, 104]


def asks(session, *, shares=4, prompt=8200):
    """A new session whose prompt begins with so many of MARKS."""
    marks = [*MARKS[:shares], *(session * 1000 + place for place in range(4 - shares))]
    return Demand(session, session, prompt=prompt, marks=marks, lengths=[2000, 4000, 6000, 8000])


def hosted(*names, slots=2):
    """The index of groups whose slots are the same engines."""
    held = tuple(slot(index, address=f"10.0.0.{index}:8000", incarnation=f"c{index}") for index in range(slots))
    revisions = {name: revision(f"prompt of {name}", slots=held, engine=ENGINE, tokens=2000) for name in names}
    groups = (group(name, each, sharing=Sharing.DEDICATED) for name, each in revisions.items())
    return build_index(table(*groups))
