"""What Argo CD and Flux are pointed at is there, and nothing that they do takes users' groups away by accident."""

from pathlib import Path

import pytest

from support.yamlfiles import document, documents

ROOT = Path(__file__).parents[3]
GITOPS = ROOT / "manifests/gitops"
OBJECTS = [
    each
    for path in sorted(GITOPS.rglob("*.yaml"))
    for each in documents(path.read_text())
    if each["kind"] != "Component"
]


def named(kind, name):
    found = [each for each in OBJECTS if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    assert found
    return found[0]["spec"]


def test_installs_are_made_of_folders_that_are_there():
    argo, flux, helm = (named(kind, "promptgroup") for kind in ("Application", "Kustomization", "HelmRelease"))
    assert (ROOT / argo["source"]["path"] / "kustomization.yaml").exists()
    assert (ROOT / flux["path"] / "kustomization.yaml").exists()
    assert (ROOT / helm["chart"]["spec"]["chart"] / "Chart.yaml").exists()


def test_they_pin_the_version_of_the_chart():
    tag = f"v{document((ROOT / 'charts/promptgroup/Chart.yaml').read_text())['version']}"
    assert named("Application", "promptgroup")["source"]["targetRevision"] == tag
    assert named("GitRepository", "promptgroup")["ref"] == {"tag": tag}


def test_an_install_never_prunes_crds():
    assert "prune" not in named("Application", "promptgroup")["syncPolicy"]["automated"]
    assert named("Kustomization", "promptgroup")["prune"] is False


def test_groups_go_where_the_first_routers_are_and_come_after_the_install():
    team = document((ROOT / "manifests/team/kustomization.yaml").read_text())["namespace"]
    groups = named("Kustomization", "promptgroups")
    assert named("Application", "promptgroups")["destination"]["namespace"] == groups["targetNamespace"] == team
    assert groups["dependsOn"] == [{"name": "promptgroup"}]


def test_values_that_flux_gives_are_ones_of_the_chart():
    known = document((ROOT / "charts/promptgroup/values.yaml").read_text())
    for name, value in named("HelmRelease", "promptgroup")["values"].items():
        assert name in known
        assert not isinstance(value, dict) or set(value) <= set(known[name])


def test_every_image_that_an_install_pulls_comes_from_a_registry_that_can_exist():
    """The samples pull nothing from `promptgroup.invalid`: an install would wait for it until its timeout."""
    version = document((ROOT / "charts/promptgroup/Chart.yaml").read_text())["version"]
    pulled = {
        container["image"]
        for folder in ("operator/base", "router")
        for container in document((ROOT / "manifests" / folder / "deployment.yaml").read_text())["spec"]["template"][
            "spec"
        ]["containers"]
    }
    argo = named("Application", "promptgroup")["source"]["kustomize"]["images"]
    flux = [
        f"{each['name']}={each['newName']}:{each['newTag']}" for each in named("Kustomization", "promptgroup")["images"]
    ]
    assert argo == flux
    assert {each.partition("=")[0] for each in argo} == {image.partition(":")[0] for image in pulled}
    assert [each for each in argo if not each.endswith(f":{version}") or "=promptgroup.invalid/" in each] == []
    assert named("HelmRelease", "promptgroup")["values"]["imageRegistry"] != "promptgroup.invalid"


@pytest.mark.parametrize("each", OBJECTS, ids=lambda each: f"{each['kind']}-{each['metadata']['name']}")
def test_objects_name_their_namespace(each):
    assert each["kind"] == "Namespace" or each["metadata"]["namespace"]
