"""Salts of tenants, and salts of requests."""

import pytest

from promptgroup_cli.lint import salting
from support.lints import STATIC, chat, found


def salted(*salts):
    return found(*(chat(STATIC, cache_salt=each) for each in salts))


def test_a_salt_for_each_request_is_an_error():
    assert salted(*(f"s{i}" for i in range(20))) == [("cache-salt", "error", "cache_salt", 0)]


def test_a_salt_for_each_tenant_is_fine():
    assert salted(*(f"s{i % 4}" for i in range(20))) == []
    assert found(chat(STATIC)) == []


def test_of_few_requests_a_salt_that_looks_random_is_a_note():
    assert salted("123e4567-e89b-12d3-a456-426614174000") == [("cache-salt", "note", "cache_salt", 0)]
    assert salted("tenant-a") == []


@pytest.mark.parametrize("salt", [None, "", 5, {}])
def test_what_is_no_salt(salt):
    assert salted(*[salt] * 20) == []


def test_ever_new_salts_take_no_more_memory(monkeypatch):
    monkeypatch.setattr(salting, "TRACKED", 16)
    seen = salting.Salting()
    for number in range(50):
        seen.see(chat(STATIC, cache_salt=f"s{number}"))
    assert len(seen._salts) == 16
    assert [each.message for each in seen.findings()] == ["16 different salts in 16 requests"]
