from promptgroup_picker.http2.budget import CALM_TICKS, CREDIT, FORGIVEN_A_SECOND, Budget, forgive


def owing(units):
    found = Budget()
    found.charge(units)
    return found


def test_what_answers_pay_is_not_saved_up():
    found = owing(10)
    found.pay(1000)
    found.charge(5)
    assert (found.owed, found.spent) == (5, 15)


def test_all_connections_are_forgiven_at_one_rate():
    alone, none = owing(CREDIT), Budget()
    forgive([alone, none], 0.5)
    assert alone.owed == CREDIT - FORGIVEN_A_SECOND / 2
    many = [owing(CREDIT) for _ in range(10)]
    forgive([*many, none], 1.0)
    assert {each.owed for each in many} == {CREDIT - FORGIVEN_A_SECOND / 10}
    assert none.owed == 0


def test_a_connection_is_closed_only_if_it_owes_too_much_all_the_time():
    found = owing(CREDIT)
    assert not found.overdrawn
    found.charge(1)
    assert found.overdrawn
    assert [found.tick() for _ in range(CALM_TICKS)] == [False] * CALM_TICKS
    found.pay(1)
    assert not found.tick()
    found.charge(1)
    assert [found.tick() for _ in range(CALM_TICKS + 1)] == [False] * CALM_TICKS + [True]
