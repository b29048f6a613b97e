import pytest

from promptgroup_operator.engines import exposition
from promptgroup_operator.engines.exposition import MAX_LINE, MAX_NUMBER, samples

LINES = {
    "no labels": ("m 1", {}, "1"),
    "labels": ('m{a="b",c="d"} 1', {"a": "b", "c": "d"}, "1"),
    "no labels in braces": ("m{} 1", {}, "1"),
    "a comma after the last label": ('m{a="b",} 1', {"a": "b"}, "1"),
    "spaces between labels": ('m{ a="b" , c="d" } 1', {"a": "b", "c": "d"}, "1"),
    "a time": ('m{a="b"} 1.5 1700000000000', {"a": "b"}, "1.5"),
    "a comma, a brace and an equals sign in a value": ('m{a="x,y}=z",b="c"} 1', {"a": "x,y}=z", "b": "c"}, "1"),
    "escapes": (r'm{a="\\ \" \n"} 1', {"a": '\\ " \n'}, "1"),
    "an empty value": ('m{a=""} 1', {"a": ""}, "1"),
    "a value that is not a number": ("m x", {}, "x"),
}


@pytest.mark.parametrize("case", LINES)
def test_a_line(case):
    line, labels, value = LINES[case]
    assert list(samples(f"# HELP m text\n{line}\n", ("m",))) == [("m", labels, value)]


@pytest.mark.parametrize(
    "line",
    [
        "m",
        "m ",
        'm{a="b" 1',
        'm{a="b',
        "m{a=b} 1",
        'm{="b"} 1',
        'm{a="b"c="d"} 1',
        'm{a="b\\',
        "m{,} 1",
        'm{"a"} 1',
        "m}",
    ],
)
def test_a_line_that_is_no_sample_is_passed_over(line):
    assert list(samples(f"{line}\nm 1\n", ("m",))) == [("m", {}, "1")]


def test_a_line_that_is_too_long_is_passed_over():
    line = 'm{{a="{}"}} 1'
    assert list(samples(line.format("b" * (MAX_LINE - 9)), ("m",)))
    assert not list(samples(line.format("b" * (MAX_LINE - 8)), ("m",)))


def test_a_line_ends_where_prometheus_says_and_nowhere_else():
    ((_, labels, _),) = samples('m{a="x\x0by\u2028z"} 1\n', ("m",))
    assert labels == {"a": "x\x0by\u2028z"}


@pytest.mark.parametrize("text", ["nan", "NaN", "-1", "+Inf", "-Inf", "1e16", "x", ""])
def test_what_is_no_count_is_unknown(text):
    assert exposition.number(text) is None


def test_counts_and_bounds():
    assert (exposition.number("1e15"), exposition.number("0")) == (MAX_NUMBER, 0)
    assert (exposition.bound("+Inf"), exposition.bound("0.5")) == (float("inf"), 0.5)
    assert exposition.bound("nan") is exposition.bound("x") is None
