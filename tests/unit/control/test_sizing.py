import pytest

from promptgroup_operator.sizing import replicas
from support.builders import spec

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
