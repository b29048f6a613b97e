import pytest

from promptgroup_operator.sizing.verdict import current, replicas
from promptgroup_router.contract.fingerprint import fingerprint
from support.builders import revision, spec

BOUNDS = {"minReplicas": 2, "maxReplicas": 4}

SIZES = {
    "fixed": ({"replicas": 3}, 7, 3, "FixedReplicas"),
    "fixed to none": ({"replicas": 0}, 7, 0, "FixedReplicas"),
    "nothing said is one": ({"replicas": None}, 7, 1, "FixedReplicas"),
    "bounds begin at the least": ({"replicas": None, "sizing": BOUNDS}, None, 2, "WithinBounds"),
    "bounds hold what there is": ({"replicas": None, "sizing": BOUNDS}, 3, 3, "WithinBounds"),
    "bounds raise what is too little": ({"replicas": None, "sizing": BOUNDS}, 1, 2, "WithinBounds"),
    "bounds raise nothing at all": ({"replicas": None, "sizing": BOUNDS}, 0, 2, "WithinBounds"),
    "bounds cut what is too much": ({"replicas": None, "sizing": BOUNDS}, 9, 4, "WithinBounds"),
}


@pytest.mark.parametrize("case", SIZES)
def test_replicas(case):
    fields, current, value, reason = SIZES[case]
    verdict = replicas(spec(**fields), current)
    assert (verdict.value, verdict.reason, verdict.active) == (value, reason, False)


A, B = fingerprint("a"), fingerprint("b")


def test_what_a_group_had_is_what_its_one_revision_has():
    assert current([], A) is None
    assert current([revision("a", replicas=3, size=5)], A) == 3
    assert current([revision("a", replicas=3), revision("b", replicas=0)], B) == 3


def test_during_a_release_it_is_what_was_noted():
    assert current([revision("a", replicas=3), revision("b", replicas=1, size=3)], B) == 3
    assert current([revision("a", replicas=2, size=4), revision("b", replicas=2)], B) == 4
    assert current([revision("a", replicas=3), revision("b", replicas=1)], B) is None
