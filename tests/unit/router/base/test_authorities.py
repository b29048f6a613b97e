import ssl

import pytest

from promptgroup_router.base.authorities import Authorities, bundle_of, client_context
from support.enginecerts import BY_ADDRESS, BY_NAME, EngineCerts

REF = bundle_of("chat", BY_NAME)


@pytest.fixture
def ca(tmp_path):
    return EngineCerts(tmp_path).ca.encode()


def test_engines_are_verified_by_certificate_and_name(ca):
    context = client_context(ca)
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert len(context.get_ca_certs()) == 1  # and none of the system's


def test_one_bundle_serves_all_names_of_a_namespace(ca):
    assert bundle_of("chat", BY_ADDRESS) == REF != bundle_of("other", BY_NAME)
    known = Authorities()
    assert known.context(REF) is None
    assert known.learn(REF, ca) == ""
    assert known.bundles() == {REF: ca}


def test_the_context_changes_with_the_bundle_alone(ca, tmp_path):
    known = Authorities()
    known.learn(REF, ca)
    first = known.context(REF)
    known.learn(REF, ca)
    assert known.context(REF) is first
    known.learn(REF, EngineCerts(tmp_path / "other").ca.encode())
    assert known.context(REF) is not first


@pytest.mark.parametrize(
    "bad", [b"", b"garbage", b"\xff", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"]
)
def test_a_bundle_that_cannot_be_used_is_named_and_leaves_the_last_good_one(ca, bad):
    known = Authorities()
    assert "key ca.crt holds no certificates in PEM" in known.learn(REF, bad)
    assert known.context(REF) is None
    known.learn(REF, ca)
    first = known.context(REF)
    assert "AAAA" not in known.learn(REF, bad)
    assert known.context(REF) is first


def test_what_no_engine_is_verified_by_is_forgotten(ca):
    known = Authorities()
    known.learn(REF, ca)
    known.keep(frozenset({REF}))
    assert known.context(REF) is not None
    known.keep(frozenset())
    assert known.context(REF) is None
