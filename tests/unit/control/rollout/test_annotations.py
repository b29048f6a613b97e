import pytest

from promptgroup_operator.rollout import annotations
from promptgroup_operator.world.snapshot import Problem, Progress, RolledBack
from support.builders import NOW, ago

MARK = RolledBack(ago(minutes=3), "5e771295", Problem("ErrorRate", "8 % of requests failed, 1 % did"))


def test_what_is_written_is_read():
    found = annotations.encode(NOW, Progress(2, ago(minutes=1)), MARK, 7)
    assert annotations.superseded_at(found) == NOW
    assert annotations.progress(found) == Progress(2, ago(minutes=1))
    assert annotations.rolled_back(found) == MARK
    assert annotations.size(found) == 7


def test_since_when_a_step_grows_is_read():
    assert annotations.progress(annotations.encode(None, Progress(20, None, NOW), None, None)) == Progress(
        20, None, NOW
    )


def test_what_is_not_there_is_not_written():
    assert annotations.encode(None, None, None, None) == {}
    assert annotations.encode(None, Progress(0, None), None, None) == {annotations.STEP: "0"}
    assert (
        annotations.superseded_at({}),
        annotations.progress({}),
        annotations.rolled_back({}),
        annotations.size({}),
    ) == (None,) * 4


NESTED = '{"at":' + "[" * 900 + "]" * 900 + "}"


@pytest.mark.parametrize("text", ["", "soon", "-1", "1e3", "[]", "{}", '{"at": 3}', "٣", "9" * 30, "[" * 9999, NESTED])
def test_what_somebody_else_wrote_is_as_good_as_not_there(text):
    names = (
        annotations.SUPERSEDED,
        annotations.STEP,
        annotations.STEP_SINCE,
        annotations.STEP_GROWS,
        annotations.ROLLED_BACK,
        annotations.SIZE,
    )
    found = dict.fromkeys(names, text)
    assert (annotations.superseded_at(found), annotations.progress(found), annotations.size(found)) == (
        None,
        None,
        None,
    )
    assert annotations.rolled_back(found) is None
