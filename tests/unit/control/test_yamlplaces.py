"""Lines of prompts in manifests."""

from promptgroup_operator.cli import yamlplaces

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
    assert yamlplaces.systems(MANIFEST, 3) == [(8, True), (14, False), (1, False)]


def test_groups_of_a_list_have_no_place():
    assert yamlplaces.systems("kind: List\nitems: [{kind: PromptGroup}]\n", 1) == [(1, False)]
    assert yamlplaces.systems('{"kind": "PromptGroup"}', 1) == [(1, False)]
