"""Bounds on YAML. What Kubernetes takes is tested with manifests."""

import pytest
import yaml

from promptgroup_cli.base import bounded_yaml
from promptgroup_cli.base.bounded_yaml import DEPTH, VALUES, YamlError, compose_all, load_all

LAUGHS = "a0: &a0 [lol, lol, lol]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))
MERGES = "a0: &a0 {k: v}\n" + "".join(f"a{i}: &a{i}\n  <<: [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))


def test_documents():
    assert load_all("a: 1\n---\n- 2027-01-31\n---\n") == [{"a": 1}, ["2027-01-31"], None]
    assert [each.start_mark.line for each in compose_all("a: 1\n---\nb: 2\n")] == [0, 2]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("12345e7", 12345e7), ("1e3", 1000.0), ("1.5E-3", 0.0015), ("08", 8.0), (".5", 0.5), ("-5.", -5.0),
        ("0o17", 15), ("017", 15), ("0x1F", 31), ("0b11", 3), ("1_000", 1000), ("-3", -3), ("+5", 5),
        (".inf", float("inf")),
        ("1:30", "1:30"), ("1:30.5", "1:30.5"), ("8e12345", "8e12345"), ("1.2.3", "1.2.3"), ("1e3a", "1e3a"),
        ("2027-01-31", "2027-01-31"), ("-", None), ("yes", True), ("~", None), ("-x", "-x"), (".", "."),
    ],
)  # fmt: skip
def test_values_are_those_that_kubectl_sends(written, value):
    [found] = load_all(f"[{written}]" if written != "-" else written)
    assert found == [value]
    assert type(found[0]) is type(value)


def test_aliases_within_the_bounds_are_taken():
    assert load_all("a: &a {x: 1}\nb: *a\nc:\n  <<: *a\n")[0] == {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1}}


@pytest.mark.parametrize("read", [load_all, compose_all])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (LAUGHS, "more than 200,000 values by line [67], aliases expanded: write the values, or fewer"),
        (MERGES, "more than 200,000 values"),
        ("[" * 100_000, f"nested more than {DEPTH} levels deep at line 1"),
        ("- " * 5000 + "x", f"nested more than {DEPTH} levels"),
        ("a: &a [*a]", "the alias at line 1 stands inside of what it names"),
        ("a: *nobody", "not YAML: "),
        ("a: [secret", "not YAML: .* at line"),
        ("a: \x00secret", "not YAML: ReaderError"),
    ],
)
def test_what_is_refused_is_not_quoted(read, content, words):
    with pytest.raises(YamlError, match=words) as error:
        read(content)
    assert "secret" not in str(error.value)


def test_many_values_are_too_many_without_aliases_as_well(monkeypatch):
    monkeypatch.setattr(bounded_yaml, "VALUES", 10)
    with pytest.raises(YamlError, match="split the file"):
        load_all("- 1\n" * 11)
    assert VALUES > 10


def test_texts_are_those_of_the_reference_loader():
    content = "a: |\n  one\n  two\n\nb: >-\n  folded\n  text\nc: 'it''s'\nd: \"\\u00e9\\n\"\ne: yes\nf: 0x10\ng: ~\n"
    assert load_all(content) == [yaml.safe_load(content)]


def test_an_object_of_python_is_refused():
    with pytest.raises(YamlError, match="not YAML"):
        load_all("!!python/object/apply:os.system [ls]")
