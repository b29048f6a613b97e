"""Who may talk to whom, by the policies as they are written. (What a network makes of them: e2e/test_tenants.py.)"""

from pathlib import Path

import pytest

from promptgroup_contract import names
from promptgroup_operator.base.settings import Settings
from support.netpol import End, allowed
from support.yamlfiles import documents

MANIFESTS = Path(__file__).parents[3] / "manifests"
SYSTEM, TEAM, OTHER, ALONE = "promptgroup-system", "promptgroup", "chat", "search"


def read(path, namespace):
    found = documents((MANIFESTS / path).read_text())
    return [{**each, "metadata": {**each["metadata"], "namespace": namespace}} for each in found]


STORE = [
    each
    for sample in ("pool", "mooncake")
    for each in read(f"samples/{sample}.yaml", TEAM)
    if each["kind"] == "NetworkPolicy"
]
POLICIES_OF_PICKERS = read("picker/networkpolicy.yaml", TEAM)
POLICIES = [
    *STORE,
    *read("control/system/networkpolicy.yaml", SYSTEM),
    *read("operator/base/networkpolicy.yaml", SYSTEM),
    *read("team/networkpolicy.yaml", TEAM),
    *read("router/networkpolicy.yaml", TEAM),
    *POLICIES_OF_PICKERS,
    *read("router/networkpolicy.yaml", OTHER),  # a team that set its own router up
    *read("operator/base/networkpolicy.yaml", ALONE),
    *read("operator-namespaced/networkpolicy.yaml", ALONE),  # a team with an operator of its own, too
    *read("router/networkpolicy.yaml", ALONE),
]


TO_COLLECTOR = [each for space in (SYSTEM, TEAM) for each in read("tracing/networkpolicy.yaml", space)]
"""What docs/how-to/tracing.md adds to namespaces whose programs send spans."""


def named(role):
    return {"app.kubernetes.io/name": role}


def router(namespace=TEAM):
    ports = {"http": names.PORT_ROUTER, "admin": names.PORT_ROUTER_ADMIN, "peers": 9094}
    return End(namespace, named("promptgroup-router"), ports)


def engine(namespace=TEAM, port=names.PORT_ENGINE):
    return End(namespace, {names.LABEL_GROUP: "support", names.LABEL_REVISION: "9f2c61d0"}, {"http": port})


WORKER = End(TEAM, {names.LABEL_WORKER: "support"})
POOL = End(TEAM, {**named("agents-pool"), names.LABEL_KV_POOL: "agents"}, {"mq": 5555, "http": 8080})
AGENT = End(TEAM, {names.LABEL_GROUP: "agents", names.LABEL_REVISION: "9f2c61d0"}, {"http": 8000})
MOONCAKE = End(TEAM, {**named("mooncake-master"), names.LABEL_KV_POOL: "reviews"})
REVIEWER = End(TEAM, {names.LABEL_GROUP: "reviews", names.LABEL_REVISION: "9f2c61d0"}, {"http": 8000})
OPERATOR = End(SYSTEM, named("promptgroup-operator"), {"metrics": Settings().metrics_port})
API, DNS, NODE_DNS = End(), End("kube-system", {"k8s-app": "kube-dns"}), End(address="169.254.20.10")
PROMETHEUS = End("monitoring", named("prometheus"))
COLLECTOR = End("observability", named("collector"))
PICKER = End(TEAM, named("promptgroup-picker"), {"admin": 9090, "grpc": 9002})
CLIENT, NEIGHBOUR, INTERNET = End("shop", named("shop")), End(TEAM, named("batch")), End()
INTERNET_6, NODE_LINK_6 = End(address="2606:4700::1"), End(address="fe80::1")
METADATA = [
    End(address=each)
    for each in (
        *("169.254.169.254", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
        *("fd00:ec2::254", "fd20:ce::254"),
    )
]


def impostor(namespace, role):
    """A pod of somebody who may make pods in a namespace of their own, and so give them any label."""
    return End(namespace, named(role), {"metrics": 8082, "admin": 9090, "http": 8000})


@pytest.mark.parametrize(
    ("source", "target", "port", "protocol"),
    [
        (OPERATOR, API, 6443, "TCP"),
        (OPERATOR, API, 443, "TCP"),
        (OPERATOR, engine(), 8000, "TCP"),
        (OPERATOR, engine(OTHER, port=8123), 8123, "TCP"),
        (OPERATOR, router(), 9090, "TCP"),
        (OPERATOR, POOL, 8080, "TCP"),
        (OPERATOR, End(OTHER, {names.LABEL_KV_POOL: ""}), 9003, "TCP"),
        (AGENT, POOL, 5555, "TCP"),
        (REVIEWER, MOONCAKE, 50051, "TCP"),
        (REVIEWER, MOONCAKE, 17813, "TCP"),  # a transfer
        (OPERATOR, MOONCAKE, 9003, "TCP"),
        (OPERATOR, router(OTHER), 9090, "TCP"),
        (OPERATOR, PROMETHEUS, 9090, "TCP"),
        (OPERATOR, DNS, 53, "UDP"),
        (PROMETHEUS, OPERATOR, 8082, "TCP"),
        (PROMETHEUS, router(), 9090, "TCP"),
        (PROMETHEUS, engine(), 8000, "TCP"),
        (router(), API, 6443, "TCP"),
        (router(), engine(), 8000, "TCP"),
        (router(), engine(port=8123), 8123, "TCP"),
        (router(), router(), 9094, "UDP"),
        (router(), router(), 9094, "TCP"),
        (router(), router(), 9101, "UDP"),  # the last of its workers'
        (router(), DNS, 53, "UDP"),
        (router(), NODE_DNS, 53, "UDP"),
        (CLIENT, router(), 8080, "TCP"),
        (INTERNET, router(), 8080, "TCP"),
        (engine(), INTERNET, 443, "TCP"),  # weights
        (WORKER, INTERNET, 443, "TCP"),
        (engine(), WORKER, 40001, "TCP"),  # of one replica
        (WORKER, engine(), 29501, "TCP"),
        (WORKER, WORKER, 40001, "TCP"),
        (engine(), INTERNET_6, 443, "TCP"),
        (engine(), End(OTHER, named("kv-pool")), 9000, "TCP"),
        (engine(), DNS, 53, "UDP"),
        (engine(), NODE_DNS, 53, "UDP"),
        (impostor(ALONE, "promptgroup-operator"), engine(ALONE), 8000, "TCP"),  # the operator of one namespace
        (impostor(ALONE, "promptgroup-operator"), router(ALONE), 9090, "TCP"),
    ],
)
def test_what_is_needed_is_open(source, target, port, protocol):
    assert allowed(POLICIES, source, target, port, protocol)


@pytest.mark.parametrize(
    ("source", "target", "port", "protocol"),
    [
        (CLIENT, engine(), 8000, "TCP"),  # past the routers
        (NEIGHBOUR, engine(), 8000, "TCP"),
        (NEIGHBOUR, WORKER, 40001, "TCP"),
        (router(), WORKER, 40001, "TCP"),
        (OPERATOR, WORKER, 8000, "TCP"),
        (WORKER, engine(OTHER), 29501, "TCP"),
        (engine(), POOL, 5555, "TCP"),  # another group's
        (AGENT, MOONCAKE, 50051, "TCP"),
        (OPERATOR, MOONCAKE, 50051, "TCP"),
        (NEIGHBOUR, MOONCAKE, 50051, "TCP"),
        (OPERATOR, POOL, 5555, "TCP"),
        (NEIGHBOUR, POOL, 5555, "TCP"),
        (impostor("shop", "promptgroup-operator"), POOL, 8080, "TCP"),
        (engine(), engine(), 8000, "TCP"),
        (router(OTHER), engine(), 8000, "TCP"),  # another team's router
        (router(), engine(OTHER), 8000, "TCP"),
        (router(OTHER), router(), 9094, "UDP"),
        (router(OTHER), router(), 9094, "TCP"),
        (router(), router(), 9102, "UDP"),
        (CLIENT, router(), 9090, "TCP"),  # metrics, the table
        (NEIGHBOUR, router(), 9090, "TCP"),
        (router(), INTERNET, 80, "TCP"),
        (CLIENT, OPERATOR, 8082, "TCP"),
        (PROMETHEUS, OPERATOR, 8081, "TCP"),
        (OPERATOR, INTERNET, 80, "TCP"),
        (OPERATOR, router(), 8080, "TCP"),
        (impostor("shop", "promptgroup-operator"), engine(), 8000, "TCP"),
        (impostor("shop", "promptgroup-operator"), router(), 9090, "TCP"),
        (impostor(TEAM, "promptgroup-operator"), engine(), 8000, "TCP"),
        (impostor(TEAM, "promptgroup-operator"), router(), 9090, "TCP"),
        (impostor("shop", "prometheus"), engine(), 8000, "TCP"),
        (impostor("shop", "prometheus"), OPERATOR, 8082, "TCP"),
        (impostor("shop", "promptgroup-router"), engine(), 8000, "TCP"),
        (impostor(ALONE, "promptgroup-operator"), engine(), 8000, "TCP"),  # another team's operator
        *((source, each, 80, "TCP") for each in METADATA for source in (engine(), WORKER)),
        (engine(), METADATA[0], 53, "TCP"),
        (engine(), NODE_DNS, 80, "TCP"),
        (engine(), NODE_LINK_6, 80, "TCP"),
        (CLIENT, NEIGHBOUR, 80, "TCP"),  # what no policy names is denied in the namespaces that are ours
        (CLIENT, End(SYSTEM, named("other")), 80, "TCP"),
    ],
)
def test_all_else_is_closed(source, target, port, protocol):
    assert not allowed(POLICIES, source, target, port, protocol)


GATEWAY_POD = {"gateway.networking.k8s.io/gateway-name": "inference-gateway"}


def test_pickers_let_in_gateways_and_nobody_else():
    ours, theirs = End(TEAM, GATEWAY_POD), End("envoy-gateway-system", named("envoy"))
    assert allowed(POLICIES_OF_PICKERS, ours, PICKER, 9002)
    assert not allowed(POLICIES_OF_PICKERS, ours, PICKER, 9090)
    for source in (CLIENT, NEIGHBOUR, INTERNET, theirs, End("shop", GATEWAY_POD), engine(), router()):
        assert not allowed(POLICIES, source, PICKER, 9002)
    (peers,) = [
        rule["from"] for rule in POLICIES_OF_PICKERS[0]["spec"]["ingress"] if rule["ports"][0]["port"] == "grpc"
    ]
    labelled = {"namespaceSelector": {"matchLabels": {"promptgroup.dev/gateways": "true"}}}
    assert peers[1:] == [labelled], "of other namespaces, those that somebody named for it"


def test_a_teams_own_pods_are_left_alone_where_it_sets_a_router_up():
    assert allowed(POLICIES, CLIENT, End(OTHER, named("anything")), 80)
    assert allowed(POLICIES, End(OTHER, named("anything")), INTERNET, 443)


@pytest.mark.parametrize("source", [OPERATOR, router(), PICKER], ids=["operator", "router", "picker"])
def test_spans_reach_a_collector_only_where_a_policy_names_it(source):
    assert not allowed(POLICIES, source, COLLECTOR, 4318)
    opened = [*POLICIES, *TO_COLLECTOR]
    assert allowed(opened, source, COLLECTOR, 4318)
    assert not allowed(opened, source, COLLECTOR, 4317)
    assert not allowed(opened, source, End("shop", named("collector")), 4318)
    assert not allowed(opened, source, INTERNET, 4318)


def test_the_way_to_a_collector_is_open_for_nobody_else():
    opened = [*POLICIES, *TO_COLLECTOR]
    assert not allowed(opened, NEIGHBOUR, COLLECTOR, 4318)
    assert not allowed(opened, router(OTHER), COLLECTOR, 4318)  # a team that did not ask for it
