"""Lines of prompts in manifests."""

from promptgroup_cli.rehearsal import yaml_positions

MANIFEST = """\
# ours
kind: ConfigMap
---
kind: PromptGroup
spec:
  prompt:
    system: |
      You are kind.
      Always.
---
kind: PromptGroup
spec:
  prompt:
    system: Be
      kind.
---
kind: PromptGroup
spec:
  prompt:
    systemFrom: {configMapKeyRef: {name: a, key: b}}
"""


def test_a_literal_block_has_the_lines_of_its_file():
    assert yaml_positions.system_places(MANIFEST, 3) == [(8, True), (14, False), (1, False)]


def test_groups_of_a_list_have_no_place():
    assert yaml_positions.system_places("kind: List\nitems: [{kind: PromptGroup}]\n", 1) == [(1, False)]
    assert yaml_positions.system_places('{"kind": "PromptGroup"}', 1) == [(1, False)]


def test_the_lines_of_templates():
    one = "kind: PromptGroup\nspec:\n  engine:\n    template:\n      spec: {}\n"
    other = "kind: PromptGroup\nspec: {}\n"
    assert yaml_positions.template_lines(f"{one}---\n{other}", 2) == [5, 1]
