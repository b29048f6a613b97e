"""Who may talk to whom, by the policies as they are written. (No CNI is asked: kind's own does not enforce them.)"""

from pathlib import Path

import pytest
import yaml

from promptgroup_operator.base.settings import Settings
from promptgroup_router.contract import names
from support.netpol import End, allowed

MANIFESTS = Path(__file__).parents[3] / "manifests"
SYSTEM, TEAM, OTHER = "promptgroup-system", "promptgroup", "chat"


def read(path, namespace):
    found = yaml.safe_load_all((MANIFESTS / path).read_text())
    return [{**each, "metadata": {**each["metadata"], "namespace": namespace}} for each in found]


POLICIES = [
    *read("control/networkpolicy.yaml", SYSTEM),
    *read("operator/base/networkpolicy.yaml", SYSTEM),
    *read("team/networkpolicy.yaml", TEAM),
    *read("router/networkpolicy.yaml", TEAM),
    *read("router/networkpolicy.yaml", OTHER),  # a team that set its own router up
    *read("operator/base/networkpolicy.yaml", OTHER),
]


def named(role):
    return {"app.kubernetes.io/name": role}


def router(namespace=TEAM):
    ports = {"http": names.PORT_ROUTER, "admin": names.PORT_ROUTER_ADMIN, "peers": 9094}
    return End(namespace, named("promptgroup-router"), ports)


def engine(namespace=TEAM, port=names.PORT_ENGINE):
    return End(namespace, {names.LABEL_GROUP: "support", names.LABEL_REVISION: "9f2c61d0"}, {"http": port})


OPERATOR = End(SYSTEM, named("promptgroup-operator"), {"metrics": Settings().metrics_port})
API, DNS, NODE_DNS = End(), End("kube-system", {"k8s-app": "kube-dns"}), End(address="169.254.20.10")
PROMETHEUS = End("monitoring", named("prometheus"))
CLIENT, NEIGHBOUR, INTERNET = End("shop", named("shop")), End(TEAM, named("batch")), End()


@pytest.mark.parametrize(
    ("source", "target", "port", "protocol"),
    [
        (OPERATOR, API, 6443, "TCP"),
        (OPERATOR, API, 443, "TCP"),
        (OPERATOR, engine(), 8000, "TCP"),
        (OPERATOR, engine(OTHER, port=8123), 8123, "TCP"),
        (OPERATOR, router(), 9090, "TCP"),
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
        (router(), DNS, 53, "UDP"),
        (router(), NODE_DNS, 53, "UDP"),
        (CLIENT, router(), 8080, "TCP"),
        (INTERNET, router(), 8080, "TCP"),
        (engine(), INTERNET, 443, "TCP"),  # weights
        (End(OTHER, named("promptgroup-operator")), engine(OTHER), 8000, "TCP"),  # an operator of one namespace
    ],
)
def test_what_is_needed_is_open(source, target, port, protocol):
    assert allowed(POLICIES, source, target, port, protocol)


@pytest.mark.parametrize(
    ("source", "target", "port", "protocol"),
    [
        (CLIENT, engine(), 8000, "TCP"),  # past the routers
        (NEIGHBOUR, engine(), 8000, "TCP"),
        (engine(), engine(), 8000, "TCP"),
        (router(OTHER), engine(), 8000, "TCP"),  # another team's router
        (router(), engine(OTHER), 8000, "TCP"),
        (router(OTHER), router(), 9094, "UDP"),
        (CLIENT, router(), 9090, "TCP"),  # metrics, the table
        (NEIGHBOUR, router(), 9090, "TCP"),
        (router(), INTERNET, 80, "TCP"),
        (CLIENT, OPERATOR, 8082, "TCP"),
        (PROMETHEUS, OPERATOR, 8081, "TCP"),
        (OPERATOR, INTERNET, 80, "TCP"),
        (OPERATOR, router(), 8080, "TCP"),
        (CLIENT, NEIGHBOUR, 80, "TCP"),  # what no policy names is denied in the namespaces that are ours
        (CLIENT, End(SYSTEM, named("other")), 80, "TCP"),
    ],
)
def test_all_else_is_closed(source, target, port, protocol):
    assert not allowed(POLICIES, source, target, port, protocol)


def test_a_teams_own_pods_are_left_alone_where_it_sets_a_router_up():
    assert allowed(POLICIES, CLIENT, End(OTHER, named("anything")), 80)
    assert allowed(POLICIES, End(OTHER, named("anything")), INTERNET, 443)
