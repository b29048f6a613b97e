from promptgroup_router.routing.admission_queue import NEW_SECONDS, PASSED_OVER, WAIT_SECONDS, AdmissionQueue


def test_sessions_that_have_begun_come_first_then_the_order_of_arrival():
    holding, served = AdmissionQueue(), []
    holding.put("new", 0.0, new=True)
    holding.put("first", 1.0, new=False)
    holding.put("second", 2.0, new=False)
    holding.admit(lambda item: served.append(item) or True)
    assert served == ["first", "second", "new"]
    assert not holding


def test_what_does_not_fit_is_passed_over_and_keeps_its_place():
    holding, served = AdmissionQueue(), []
    for number in range(3):
        holding.put(number, float(number), new=False)
    holding.admit(lambda item: item != 0 and (served.append(item) or True))
    assert served == [1, 2]
    holding.admit(lambda item: served.append(item) or True)
    assert served == [1, 2, 0]


def test_a_full_cluster_costs_a_few_looks_only():
    holding, asked = AdmissionQueue(), []
    for number in range(100):
        holding.put(number, float(number), new=False)
    holding.admit(lambda item: asked.append(item) is not None)
    assert asked == list(range(PASSED_OVER))
    assert len(holding) == 100


def test_nobody_waits_for_too_long_and_a_new_session_less():
    holding = AdmissionQueue()
    holding.put("old", 0.0, new=False)
    holding.put("new", 0.0, new=True)
    assert list(holding.expire(NEW_SECONDS)) == []
    assert list(holding.expire(NEW_SECONDS + 0.1)) == ["new"]
    assert list(holding.expire(WAIT_SECONDS + 0.1)) == ["old"]
    assert not holding


def test_a_request_that_is_withdrawn_is_neither_served_nor_late():
    holding = AdmissionQueue()
    ticket = holding.put("gone", 0.0, new=False)
    holding.withdraw(ticket)
    assert not holding
    assert list(holding.expire(1e9)) == []
    other = holding.put("gone too", 0.0, new=False)
    holding.withdraw(other)
    holding.admit(lambda item: (_ for _ in ()).throw(AssertionError(item)))
    assert len(holding) == 0


def test_one_that_ends_while_others_are_let_in_is_safe():
    holding, served = AdmissionQueue(), []
    holding.put("a", 0.0, new=False)
    second = holding.put("b", 1.0, new=False)
    holding.put("c", 2.0, new=False)

    def fits(item):
        if item == "a":
            holding.withdraw(second)
        served.append(item)
        return True

    holding.admit(fits)
    assert served == ["a", "c"]
    assert not holding
