import json
from pathlib import Path

import pytest
import yaml

from support.scriptedkube import Answer

FOLDER = Path(__file__).parent.parent / "adoption" / "deployments"
FILE = str(FOLDER / "vllm.yaml")


def test_a_file_becomes_a_manifest(command):
    code, out, _ = command("adopt", "-f", FILE)
    assert code == 0
    assert yaml.safe_load(out)["metadata"] == {"name": "mistral-7b", "namespace": "chat"}
    assert "in the place of http://mistral" in out


def test_the_manifest_is_written_once_and_the_rest_is_told(command, tmp_path):
    target = tmp_path / "host.yaml"
    code, out, _ = command("adopt", "-f", FILE, "--name", "pool", "--write", str(target))
    assert code == 0
    assert f"wrote {target}" in out
    assert f"apply -f {target}" in out
    assert yaml.safe_load(target.read_text())["metadata"]["name"] == "pool"
    code, _, err = command("adopt", "-f", FILE, "--write", str(target))
    assert (code, "it exists" in err) == (2, True)


def test_it_is_json_for_programs(command):
    found = json.loads(command("adopt", "-f", FILE, "-o", "json")[1])
    assert (found["engine"], found["deployment"]["name"]) == ("vLLM", "mistral-7b")


def test_a_deployment_of_the_cluster_is_read_with_the_services_that_lead_to_it(kube, command):
    deployment, service = yaml.safe_load_all(Path(FILE).read_text())

    def serve(_method, path):
        kind = path.partition("?")[0].rsplit("/", 1)[-1]
        found = {"deployments": [deployment], "services": [service]}.get(kind, [])
        items = [{**each, "metadata": {**each["metadata"], "resourceVersion": "1"}} for each in found]
        return Answer(200, json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode())

    kube.serve = serve
    code, out, err = command("adopt", "mistral-7b", "-n", "chat")
    assert (code, err) == (0, "")
    assert "in the place of http://mistral" in out


@pytest.mark.parametrize(
    ("content", "status", "said"),
    [
        ("a: [", 2, "file.yaml"),
        ("kind: InferenceService\nmetadata: {name: q}", 1, "KServe makes a Deployment"),
    ],
)
def test_what_cannot_be_adopted_is_told_with_a_way_out(command, tmp_path, content, status, said):
    file = tmp_path / "file.yaml"
    file.write_text(content)
    code, out, err = command("adopt", "-f", str(file))
    assert (code, out) == (status, "")
    assert said in err


def test_without_a_name_and_a_file_it_asks_for_one(command):
    code, _, err = command("adopt")
    assert (code, "name the Deployment to adopt" in err) == (2, True)
