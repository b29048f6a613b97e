from promptgroup_picker.http2.budget import CALM_TICKS, CREDIT, FORGIVEN_A_SECOND, INHERITED, Budget, Network, forgive


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


def test_a_network_owes_what_its_connections_do_and_what_closed_ones_did():
    network = Network()
    one, other = network.begin(), network.begin()
    one.charge(100)
    other.charge(50)
    other.pay(80)
    assert (network.owed, network.open) == (100, 2)
    network.end(one)
    assert (network.owed, network.gone.owed, network.settled) == (100, 100, False)
    next_one = network.begin()
    assert (next_one.owed, network.gone.owed, network.owed) == (100, 0, 100)
    network.end(other)
    network.end(next_one)
    assert not network.settled
    forgive([network.gone], 1.0)
    assert network.settled


def test_a_new_connection_still_has_turns_whatever_closed_ones_owed():
    network = Network()
    for _ in range(3):
        closed = network.begin()
        closed.charge(CREDIT)
        network.end(closed)
    fresh = network.begin()
    assert fresh.owed == INHERITED
    assert not fresh.overdrawn
