from promptgroup_cli.adoption import handover, host, workload


def adopted(replicas=2, metadata=None, labels=None):
    container = {"command": ["vllm", "serve", "m"], "resources": {"limits": {"nvidia.com/gpu": "4", "cpu": "1"}}}
    template = {"metadata": {"labels": labels or {"app": "a"}}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "template": template}
    return host.adopt(
        workload.find([{"kind": "Deployment", "metadata": {"name": "old", **(metadata or {})}, "spec": spec}])
    )


def text(adoption, services=()):
    return "\n".join(
        line for step in handover.steps(adoption, "host.yaml", "chat", services) for line in (step.what, *step.commands)
    )


def test_the_order_is_beside_it_warm_switch_remove():
    lines = text(adopted(), ["llama"])
    words = [
        "apply -f host.yaml",
        "--for=condition=Ready",
        "http://promptgroup-router.chat/v1",
        "delete deployment old",
    ]
    places = [lines.index(word) for word in words]
    assert places == sorted(places)
    assert "8 GPUs more" in lines
    assert "in the place of http://llama" in lines


def test_the_only_replica_cannot_go_without_a_gap():
    assert "clients wait" in text(adopted(1))
    assert "clients wait" not in text(adopted(2))


def test_services_are_those_that_select_the_pods():
    def service(name, **selector):
        return {"kind": "Service", "metadata": {"name": name}, "spec": {"selector": selector}}

    found = [service("b", app="a"), service("other", app="b"), service("none"), {"kind": "Deployment"}]
    assert handover.services(adopted(), found) == ["b"]


def test_what_somebody_else_makes_is_removed_there():
    owners = {"ownerReferences": [{"kind": "InferenceService", "name": "qwen"}]}
    helm = {"labels": {"app.kubernetes.io/managed-by": "Helm"}}
    argo = {"annotations": {"argocd.argoproj.io/tracking-id": "x"}}
    assert [handover.owner(adopted(metadata=each)) for each in (owners, helm, argo, None)] == [
        "InferenceService qwen", "a Helm release", "an Argo CD Application", "",
    ]  # fmt: skip
    assert "delete deployment" not in text(adopted(metadata=owners))
