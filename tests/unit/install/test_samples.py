"""Every PromptGroup that manifests/ show is one that the operator takes, with no warning."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from promptgroup_cli.rehearsal import manifest
from support.yamlfiles import documents

MANIFESTS = Path(__file__).parents[3] / "manifests"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SAMPLES = [
    path
    for path in sorted(MANIFESTS.rglob("*.yaml"))
    if any(each and each.get("kind") == "PromptGroup" for each in documents(path.read_text()))
]


def test_every_sample_is_looked_at():
    assert {*(MANIFESTS / "samples").rglob("*.yaml"), MANIFESTS / "overlays/kind/support.yaml"} == set(SAMPLES)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_can_be_planned(path):
    wanted = manifest.read_group(path.read_text(), "promptgroup", NOW)
    assert wanted.warnings == ()


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_declares_what_clients_send(path):
    """A prompt that ends in a line feed, as `|` writes it in YAML, is not the text that clients send."""
    groups = [each["spec"] for each in documents(path.read_text()) if each["kind"] == "PromptGroup"]
    prompts = [each["prompt"] for each in groups if "prompt" in each]
    for text in (prompt["system"] for prompt in prompts if "system" in prompt):
        assert text == text.strip()


def test_samples_can_all_be_applied_to_one_namespace():
    objects = [
        (each["kind"], each["metadata"]["name"])
        for path in SAMPLES
        if not {"overlays", "gateways"} & set(path.parts)  # one gateway is chosen
        for each in documents(path.read_text())
    ]
    assert len(objects) == len(set(objects))
