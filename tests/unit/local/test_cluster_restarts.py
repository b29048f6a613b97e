import pytest

from promptgroup_local.cluster.nodeagent.pods.restarts import Backoff, restarts


@pytest.mark.parametrize(
    ("policy", "code", "init", "again"),
    [
        ("Always", 0, False, True),
        ("Always", 1, False, True),
        ("Always", 0, True, False),
        ("Always", 1, True, True),
        ("OnFailure", 0, False, False),
        ("OnFailure", 1, False, True),
        ("Never", 0, False, False),
        ("Never", 1, False, False),
        ("Never", 1, True, False),
    ],
)
def test_the_restart_policy_decides(policy: str, code: int, init: bool, again: bool) -> None:
    assert restarts(policy, code, init=init) is again


def test_waits_double_up_to_a_limit_and_begin_anew_after_a_calm_minute() -> None:
    backoff = Backoff()
    assert [backoff.after(0.1) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert backoff.after(60) == 1
    assert backoff.after(59.9) == 2
