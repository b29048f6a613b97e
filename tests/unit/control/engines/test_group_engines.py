import contextlib

import pytest

from promptgroup_operator.base.errors import EngineError
from promptgroup_operator.engines.connections import PLAIN, EngineAccess, Trust
from promptgroup_operator.engines.group_engines import GroupEngines
from promptgroup_operator.world.snapshot import NO_CONTAINER, ContainerId, Key

GROUP, OTHER = Key("chat", "support"), Key("tenant", "support")
ONE, TWO = ContainerId("containerd://one"), ContainerId("containerd://two")
ADDRESS = "10.0.0.1:8000"
SECURE = EngineAccess("engine-key", Trust("authorities", "engine.chat.svc"))


@pytest.fixture
def engines():
    with contextlib.closing(GroupEngines()) as found:
        yield found


@pytest.fixture
def sent(engines, monkeypatch):
    """What was sent: the credential and the trust of each request."""
    told = []

    def request(_method, _address, _path, trust, *, headers, **_):
        told.append((headers.get("authorization"), trust))
        raise OSError

    monkeypatch.setattr(engines._pools, "request", request)
    return told


def ask(client):
    with pytest.raises(EngineError):
        client.text(ADDRESS)


def test_an_engine_gets_the_credential_that_it_asks_for(engines, sent):
    engines.authorize(GROUP, {ONE: SECURE, TWO: PLAIN})
    ask(engines.of(GROUP, ONE))
    ask(engines.of(GROUP, TWO))
    assert sent == [("Bearer engine-key", SECURE.trust), (None, None)]


def test_who_has_an_engines_address_now_gets_nothing_of_it(engines, sent):
    engines.authorize(GROUP, {ONE: SECURE})
    engines.authorize(OTHER, {TWO: PLAIN})
    ask(engines.of(OTHER, TWO))
    ask(engines.plain)
    assert sent == [(None, None)] * 2


@pytest.mark.parametrize(("group", "container"), [(GROUP, TWO), (OTHER, ONE), (GROUP, NO_CONTAINER)])
def test_what_is_not_a_groups_engine_is_not_asked(engines, group, container):
    engines.authorize(GROUP, {ONE: SECURE})
    with pytest.raises(EngineError):
        engines.of(group, container)


def test_an_engine_that_is_gone_is_not_asked(engines):
    engines.authorize(GROUP, {ONE: SECURE, TWO: SECURE})
    engines.authorize(GROUP, {TWO: SECURE})
    with pytest.raises(EngineError):
        engines.of(GROUP, ONE)
    engines.authorize(GROUP, {})
    with pytest.raises(EngineError):
        engines.of(GROUP, TWO)


def test_connections_are_kept_while_an_engine_of_any_group_is_verified_so(engines, monkeypatch):
    kept = []
    monkeypatch.setattr(engines._pools, "keep", lambda trusts: kept.append(set(trusts)))
    engines.authorize(GROUP, {ONE: SECURE})
    engines.authorize(OTHER, {TWO: SECURE})
    engines.authorize(OTHER, {ONE: SECURE})
    engines.authorize(GROUP, {})
    engines.authorize(OTHER, {})
    assert kept == [{SECURE.trust}, set()], "nothing is closed where engines come that are verified so"
