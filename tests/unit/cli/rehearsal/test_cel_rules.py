"""The rules that the CRD carries in CEL, evaluated where no API server is."""

import pytest

from promptgroup_cli.rehearsal import cel_rules
from promptgroup_operator.api.crd import structural
from promptgroup_operator.api.prompt_group import PromptGroup, parse_spec
from support import builders
from support.brokenspecs import BROKEN


def every_rule(node):
    yield from (each["rule"] for each in node.get("x-kubernetes-validations", []))
    for child in node.get("properties", {}).values():
        yield from every_rule(child)
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from every_rule(node[key])


def test_every_rule_of_the_crd_is_read_here_and_no_other():
    assert set(every_rule(structural(PromptGroup))) == cel_rules.HOLDS.keys() | cel_rules.KEEPS.keys()
    assert not cel_rules.HOLDS.keys() & cel_rules.KEEPS.keys()


def test_a_sound_spec_breaks_none():
    sound = builders.spec(rollout={"steps": [{"weight": 5}, {"weight": 25}], "maxSurge": "25%"}, sizing=None)
    assert list(cel_rules.broken_rules("support", sound, sound)) == []


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_rule_is_said_with_its_field(case):
    fields, expected = BROKEN[case]
    (found,) = cel_rules.broken_rules("support", builders.spec(**fields))
    assert expected in found


def test_a_name_that_fits_no_label():
    (found,) = cel_rules.broken_rules("x" * 51, builders.spec())
    assert found.startswith("metadata.name is longer than 50")


def test_a_change_of_the_model_is_refused_and_any_other_is_not():
    (found,) = cel_rules.broken_rules("support", builders.spec(model="other"), builders.spec())
    assert found.startswith("spec.model cannot be changed, clients name it: ")
    assert list(cel_rules.broken_rules("support", builders.spec(replicas=9), builders.spec())) == []


def test_defaults_break_no_rule():
    bare = {"model": "llama", "prompt": {"system": "x"}, "engine": {"image": "i"}}
    assert list(cel_rules.broken_rules("support", parse_spec(bare))) == []


def test_a_group_changes_neither_to_several_nodes_nor_back():
    one, two, four = (builders.spec(engine={"nodes": nodes}) for nodes in (1, 2, 4))
    for new, old in ((one, two), (two, one), (builders.spec(), two), (two, builders.spec())):
        (fault,) = cel_rules.broken_rules("support", new, old)
        assert "engine.nodes cannot change from one node to several or back" in fault
    assert list(cel_rules.broken_rules("support", four, two)) == []
    assert list(cel_rules.broken_rules("support", one, builders.spec())) == []
