"""What of the chart is written by hand, beside what it repeats."""

import json
import tomllib
from pathlib import Path

from support.yamlfiles import document

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts/promptgroup"


def test_the_chart_has_the_projects_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    chart = document((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == project["version"]


def test_the_charts_crds_are_the_projects():
    for path in (ROOT / "crds").glob("prompt*.yaml"):
        assert (CHART / "crds" / path.name).read_text() == path.read_text(), "run `make generate`"


def test_the_schema_has_every_value_and_no_other():
    schema = json.loads((CHART / "values.schema.json").read_text())

    def names(node, prefix=""):
        node = schema["$defs"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node
        inner = node.get("properties")
        return {prefix[1:]} if inner is None else {n for key in inner for n in names(inner[key], f"{prefix}.{key}")}

    def given(node, prefix=""):
        if not isinstance(node, dict) or not node:
            return {prefix[1:]}
        return {name for key, each in node.items() for name in given(each, f"{prefix}.{key}")}

    values = given(document((CHART / "values.yaml").read_text()))
    parts = {"requests", "limits"}
    flat = {".".join(name.split(".")[:3]) if parts & set(name.split(".")) else name for name in values}
    assert {name for name in names(schema) if name.rpartition(".")[2] != "claims" and name != "global"} == flat


def test_the_schema_asks_for_every_block_that_templates_look_into():
    """A value that is set to null is taken away, and a template would say no more than that a pointer is nil."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    blocks = {name for name, each in schema["properties"].items() if "properties" in each}
    assert set(schema["required"]) == blocks
    programs = [schema["properties"][name] for name in ("operator", "router", "picker")]
    assert all({"image", "namespaces"} <= set(each["required"]) for each in programs)


def test_one_file_names_the_registry_for_every_way_to_install():
    """Kustomize: no image stands anywhere but in manifests/images, and all programs refer to it."""
    component = document((ROOT / "manifests/images/kustomization.yaml").read_text())
    named = {each["name"] for each in component["images"]}
    deployments = [ROOT / "manifests/operator/base", ROOT / "manifests/router", ROOT / "manifests/picker"]
    used = set()
    for folder in deployments:
        (container,) = document((folder / "deployment.yaml").read_text())["spec"]["template"]["spec"]["containers"]
        used.add(container["image"].rpartition(":")[0])
        (path,) = document((folder / "kustomization.yaml").read_text())["components"]
        assert (folder / path / "kustomization.yaml").resolve() == ROOT / "manifests/images/kustomization.yaml"
    assert used == named
