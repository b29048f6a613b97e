"""What is printed of a sample of pairs."""

from promptgroup_cli.calibration.choice import choose, outcome
from promptgroup_cli.calibration.pairs import Judged, Pair
from promptgroup_cli.calibration.report import report, row


def sample(count, same=True, similarity=0.95):
    return [Judged(Pair(f"one {n}", f"other\x1b[31m {n}", same), similarity) for n in range(count)]


def test_a_row_has_shares_with_their_intervals():
    of = outcome([*sample(3), *sample(1, same=False)], 0.9)
    assert row(of) == ("0.9", "4", "0.7500", "0.3006 to 0.9544", "1.000", "0.439 to 1.000")
    assert row(outcome([], 0.9))[2:5:2] == ("-", "-")


def test_a_proven_threshold_is_named_with_what_it_has_on_other_pairs():
    pairs = sample(600)
    text = "\n".join(report(pairs, sample(100), choose(pairs, 0.99), 0.99))
    assert "700 pairs, 700 of them with one answer; 100 are held out" in text
    assert "\nthreshold: 0.5\n" in text
    assert "1.0000   0.9630 to 1.0000" in text


def test_where_none_is_proven_the_way_out_is_said_and_nothing_unprintable():
    pairs = sample(20, same=False)
    text = "\n".join(report(pairs, pairs, None, 0.99))
    assert "It takes 459 answered pairs without an error" in text
    assert "0.950  one 0 | other [31m 0" in text
    assert "\x1b" not in text
    assert "\n".join(report([], [], None, 0.99))
