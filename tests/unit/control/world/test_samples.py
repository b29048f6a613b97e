from promptgroup_operator.world.samples import Flow, Histogram, Stratum, Traffic

A, B = Histogram((1.0,), (3.0, 1.0)), Histogram((1.0,), (1.0, 4.0))


def test_histograms_add_up_and_what_came_since_is_never_negative():
    assert Histogram((1.0,), (4.0, 5.0)) == A + B
    assert A + Histogram() == Histogram() + A == A
    assert Histogram((1.0,), (2.0, 0.0)) == A - B
    assert A.total == 4


def test_histograms_of_other_buckets_are_not_added_up():
    other = Histogram((1.0, 2.0), (1.0, 1.0, 1.0))
    assert A + other == other + A == A
    assert other - A == other


def test_strata_add_up_and_what_came_since_is_never_negative():
    one, two = Stratum(5, 1, A, B), Stratum(3, 2, B, A)
    assert one + two == Stratum(8, 3, A + B, B + A)
    assert one - two == Stratum(2, 0, A - B, B - A)


def test_traffic_knows_its_requests():
    assert Traffic(True, {"a": Flow(2, 1), "b": Flow(3, 0)}).requests() == 5
