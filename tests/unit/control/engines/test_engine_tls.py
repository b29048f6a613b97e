import pytest

from promptgroup_contract.engine_tls import EngineTls
from promptgroup_operator.api.prompt_group import AuthoritySource, EngineTlsSpec
from promptgroup_operator.engines.engine_tls import pod_parts, tls_of
from support.builders import spec

REF = {"name": "engine-ca", "key": "ca.crt"}


@pytest.mark.parametrize(("kind", "source"), [("ConfigMap", "configMapKeyRef"), ("Secret", "secretKeyRef")])
def test_an_engine_is_verified_by_the_authorities_and_the_name_of_the_spec(kind, source):
    engine = spec(engine={"tls": {"caFrom": {source: REF}, "serverName": "engines"}}).engine
    assert tls_of(engine.tls) == EngineTls(kind, "engine-ca", "ca.crt", "engines")
    engine = spec(engine={"tls": {"caFrom": {source: REF}}}).engine
    assert tls_of(engine.tls) == EngineTls(kind, "engine-ca", "ca.crt")


def test_a_spec_without_authorities_verifies_nobody():
    with pytest.raises(ValueError, match="names no source"):
        tls_of(EngineTlsSpec(ca_from=AuthoritySource()))


def test_an_engine_without_tls_needs_nothing():
    assert pod_parts(spec().engine, "engine") == {}
