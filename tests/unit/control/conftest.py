"""A reader and a writer before an API server in memory."""

import pytest

from promptgroup_operator.kube.leader_election import Term
from promptgroup_operator.kube.store import Store
from promptgroup_operator.world.lookup import KINDS
from support.writtenkube import Cluster, Server, deliver, promptgroup


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def stores():
    return {kind: Store(kind, lambda _: None) for kind in KINDS}


@pytest.fixture
def cluster(server, stores):
    deliver(server, stores, promptgroup("support"))
    return Cluster(server, Term(until=float("inf")), stores)
