"""What `promptgroup plan` says without a cluster, beside what a real control plane says."""

import io
import json
import sys
from subprocess import CompletedProcess, run

import pytest
import yaml

from promptgroup_cli.__main__ import main
from promptgroup_cli.rehearsal import cel_rules
from promptgroup_local.kubectl import Kubectl
from promptgroup_operator.api.prompt_group import parse_spec
from support.brokenspecs import BROKEN
from support.differences import wait_no_difference
from support.groups import PROMPTS, group

pytestmark = pytest.mark.integration

SERVER_SIDE = ("--server-side", "--force-conflicts")


def plan(*arguments: str, stdin: str) -> CompletedProcess[str]:
    command = [sys.executable, "-m", "promptgroup_cli", "plan", "-", *arguments]
    return run(command, input=stdin, capture_output=True, text=True, check=False, timeout=60)


def document(*objects: dict) -> str:
    return yaml.safe_dump_all(objects)


def objects_of(namespace: str, *wanted: dict) -> str:
    planned = plan("--objects", "-n", namespace, stdin=document(*wanted))
    assert planned.returncode == 0, planned.stderr
    return planned.stdout


def test_what_is_planned_is_what_the_operator_makes(kube: Kubectl, namespace: str, operator: None) -> None:
    text = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "p"}, "stringData": {"system": PROMPTS["b"]}}
    source = {"systemFrom": {"secretKeyRef": {"name": "p", "key": "system"}}}
    for wanted in ([group("inline", replicas=2)], [text, group("secret", replicas=1, prompt=PROMPTS["b"])]):
        if len(wanted) > 1:
            wanted[-1]["spec"]["prompt"] = source
        planned = objects_of(namespace, *wanted)
        assert PROMPTS["b"] not in planned
        kube.run("apply", *SERVER_SIDE, "--dry-run=server", "-f", "-", stdin=planned)
        kube.apply(*wanted)
        replicas = wanted[-1]["spec"]["replicas"]
        kube.wait_warm(wanted[-1]["metadata"]["name"], f"{replicas}/{replicas}")
        wait_no_difference(kube, *SERVER_SIDE, "-f", "-", stdin=planned)
        other = planned.replace("maxSurge: 1", "maxSurge: 2")
        assert kube.run("diff", *SERVER_SIDE, "-f", "-", stdin=other, check=False).returncode == 1


def test_the_api_server_tells_of_a_pod_template_that_only_it_can_judge(kube: Kubectl, namespace: str) -> None:
    wanted = group("broken")
    wanted["spec"]["engine"]["template"] = {"spec": {"hostname": "not a name"}}
    planned = objects_of(namespace, wanted)
    refused = kube.run("apply", *SERVER_SIDE, "--dry-run=server", "-f", "-", stdin=planned, check=False)
    assert "spec.template.spec.hostname" in refused.stderr


def test_both_refuse_the_same_specs_in_the_same_words(
    kube: Kubectl, crds: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted, messages = {}, {}
    for number, (fields, _) in enumerate(BROKEN.values()):
        name = f"broken-{number}"
        wanted[name] = group(name)
        # some are broken by the group's name
        spec = wanted[name]["spec"] | json.loads(json.dumps(fields).replace('"support"', json.dumps(name)))
        wanted[name]["spec"] = {key: value for key, value in spec.items() if value is not None}
        (broken,) = cel_rules.broken_rules(name, parse_spec(wanted[name]["spec"]))
        messages[name] = broken.partition(": ")[2]

    refused = kube.apply(*wanted.values(), check=False)
    said = dict(text.split('"', 1) for text in refused.stderr.split('PromptGroup.promptgroup.dev "')[1:])
    assert said.keys() == messages.keys()
    assert [name for name, message in messages.items() if message not in said[name]] == []

    # within this process: starting another takes longer than its work
    monkeypatch.setattr("sys.argv", ["promptgroup", "plan", "-"])
    for name, message in messages.items():
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(document(wanted[name]).encode())))
        assert main() == 1
        assert message in capsys.readouterr().err
