import pytest

from promptgroup_operator.api.gateway import FailureMode
from promptgroup_operator.api.prompt_group import EngineSpec, PromptGroupSpec, RoutingSpec
from promptgroup_operator.gateway.router_features import decide
from promptgroup_operator.plan import plan
from promptgroup_operator.world.snapshot import Host
from support.builders import NOW, group, pod, revision, world

TLS = {"caFrom": {"configMapKeyRef": {"name": "ca", "key": "ca.crt"}}}
NAMED = {
    "responses": {"responses": {"cache": "Exact"}},
    "routing.firstTokenTimeout": {"routing": {"firstTokenTimeout": "20s"}},
    "routing.idleTimeout": {"routing": {"idleTimeout": "20s"}},
    "routing.keepAliveInterval": {"routing": {"keepAliveInterval": "20s"}},
    "routing.wakeTimeout": {"routing": {"wakeTimeout": "20s"}},
    "routing.resume": {"routing": {"resume": {"max": 1}}},
    "engine.tls": {"engine": {"image": "vllm/vllm-openai:v0.32.0", "tls": TLS}},
}
"""Fields that a picker does not act on."""
HELD = {
    # by the table of routes, which picker and router decide by with the same code
    *("model", "modelAliases", "prompt", "limits", "access", "rollout", "gateway"),
    *("routing.policy", "routing.sharing", "routing.loadFactorPercent", "routing.sessionHeader"),
    # by the body that the picker gives back, and refused where a gateway does not let it
    *("routing.ownInstructions", "routing.allowedEngineFields", "routing.isolation", "routing.reportCachedTokens"),
    "routing.allowedEngineHeaders",
    "engine.credentialFrom",
    # by the operator and the engines, whoever sends to them
    *("replicas", "sizing", "warmup", "cache", "engineFrom", "placement", "adapter"),
    *(
        "engine.type",
        "engine.image",
        "engine.args",
        "engine.dataParallelSize",
        "engine.nodes",
        "engine.port",
        "engine.resources",
        "engine.template",
        "engine.adapters",
        "engine.weights",
    ),
}
"""Fields that hold behind a gateway, too."""


def test_a_group_without_a_gateway_is_told_nothing():
    assert decide(group(responses={"cache": "Exact"}).spec) is None


@pytest.mark.parametrize("field", NAMED)
def test_a_field_without_effect_is_named(field):
    found = decide(group(gateway={}, **NAMED[field]).spec)
    assert (found.status, found.reason) == (True, "FeaturesOfRouter")
    assert found.message.count("spec.") == 1
    assert f"spec.{field} (" in found.message


def test_all_of_them_are_named():
    routing = {"firstTokenTimeout": "20s", "idleTimeout": "20s", "keepAliveInterval": "20s"}
    found = decide(group(gateway={}, responses={"cache": "Exact"}, routing=routing).spec)
    assert found.message.count("spec.") == 4


def test_a_group_that_sleeps_is_told_who_ends_the_wait():
    found = decide(group(gateway={}, sizing={"minReplicas": 0, "maxReplicas": 2}).spec)
    assert "spec.sizing.minReplicas: 0 (the gateway ends the wait" in found.message


def test_defaults_are_nothing_to_tell():
    found = decide(group(gateway={}).spec)
    assert (found.status, found.reason) == (False, "AllFieldsHold")


def test_every_field_was_thought_of():
    """A new field of the API is one that a picker acts on, or one that the condition names."""
    nested = {"routing": RoutingSpec, "engine": EngineSpec}
    fields = set()
    for name, each in PromptGroupSpec.model_fields.items():
        inner = nested.get(name)
        alias = each.alias or name
        fields |= {f"{alias}.{one.alias}" for one in inner.model_fields.values()} if inner else {alias}
    assert fields == HELD | set(NAMED)
    assert not HELD & set(NAMED)


def test_the_condition_of_a_pass():
    of = group(replicas=1, gateway={}, responses={"cache": "Exact"})
    todo = plan.decide(world([revision(pods=[pod("a", 0)])], of=of), NOW)
    (condition,) = (each for each in todo.status["conditions"] if each["type"] == "GatewayLimits")
    assert (condition["status"], condition["reason"]) == ("True", "FeaturesOfRouter")


def test_a_guest_is_told_what_the_gateway_of_its_host_does_not_do():
    spec = group(**NAMED["responses"], access={"type": "APIKey", "apiKey": {"secrets": ["keys"]}}).spec
    assert decide(spec, Host("pool")) is None
    closed = decide(spec, Host("pool", gateway=FailureMode.FAIL_CLOSE))
    assert "spec.responses" in closed.message
    assert "spec.access" not in closed.message
    assert "spec.access (while no picker answers" in decide(spec, Host("pool", gateway=FailureMode.FAIL_OPEN)).message
