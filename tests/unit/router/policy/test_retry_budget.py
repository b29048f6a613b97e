from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.policy.retry_budget import LEAST, SHARE, RetryBudget


def test_half_of_the_live_requests_may_be_tried_again():
    budget = RetryBudget()
    assert [budget.take("a", 30) for _ in range(16)] == [True] * 15 + [False]
    budget.give_back("a")
    assert budget.take("a", 30)


def test_a_few_always_may():
    budget = RetryBudget()
    assert [budget.take("a", 1) for _ in range(LEAST + 1)] == [True] * LEAST + [False]


def test_each_group_has_its_own():
    budget = RetryBudget()
    while budget.take("a", 0):
        pass
    assert budget.take("b", 0)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 100) | st.none()), max_size=200))
def test_it_is_never_exceeded_and_forgets_what_ended(events):
    budget, trying = RetryBudget(), {"a": 0, "b": 0}
    for key, live in events:
        if live is None:
            if trying[key]:
                budget.give_back(key)
                trying[key] -= 1
        elif budget.take(key, live):
            trying[key] += 1
            assert trying[key] <= max(LEAST, SHARE * live + 1)
    assert budget.trying == sum(trying.values())
