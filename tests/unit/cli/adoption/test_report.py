import json

import yaml

from promptgroup_cli.adoption import handover, host, report, workload


def made():
    container = {"command": ["vllm", "serve", "m\u202e"], "livenessProbe": {"x": 1}, "args": ["--seed", "1" * 200]}
    document = {
        "kind": "Deployment",
        "metadata": {"name": "a"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    found = host.adopt(workload.find([document]))
    return found, list(handover.steps(found, "host.yaml", "", []))


def test_the_manifest_is_yaml_below_comments_that_fit_a_screen():
    text = report.text(*made())
    assert yaml.safe_load(text) == made()[0].manifest
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert "# Left out:" in comments
    assert all(len(line) <= 120 for line in comments)
    assert "\u202e" not in text


def test_the_document_has_each_decision_and_each_step():
    found = json.loads(report.document(*made()))
    assert found["promptGroup"]["kind"] == "PromptGroup"
    assert {each["decision"] for each in found["fields"]} == {"kept", "left out"}
    assert found["handOver"][0]["commands"] == ["kubectl apply -f host.yaml"]
