"""What flags say of the store of answers."""

import argparse
from pathlib import Path

import pytest

from promptgroup_router.base.store_settings import read_store


def read(url="", timeout=0.02, secrets=None, key=Path("key")):
    given = argparse.Namespace(
        responses_store=url,
        responses_store_timeout=timeout,
        responses_store_secrets=secrets,
        peer_key_file=key,
    )
    return read_store(given)


def test_no_url_is_no_store():
    assert read() is None
    assert read(key=None) is None


def test_a_url_names_servers_a_user_and_a_database():
    plain = read("redis://ann%40x@h:7000/2")
    assert (plain.hosts, plain.user, plain.database, plain.tls, plain.kind) == ((("h", 7000),), "ann@x", 2, False, "")
    assert read("rediss://[::1]").hosts == (("::1", 6379),)
    cluster = read("rediss+cluster://a:1,b")
    assert (cluster.hosts, cluster.kind, cluster.tls) == ((("a", 1), ("b", 6379)), "cluster", True)
    sentinel = read("redis+sentinel://ann@a,[::2]:7/answers")
    assert (sentinel.hosts, sentinel.service) == ((("a", 26379), ("::2", 7)), "answers")


def test_a_mounted_secret_names_the_store_and_a_flag_goes_before_it(tmp_path):
    (tmp_path / "url").write_text("redis://mounted:7000\n")
    assert read(secrets=tmp_path).hosts == (("mounted", 7000),)
    assert read("redis://given", secrets=tmp_path).hosts == (("given", 6379),)
    (tmp_path / "url").unlink()
    assert read(secrets=tmp_path) is None
    (tmp_path / "url").mkdir()
    with pytest.raises(ValueError, match="cannot be read"):
        read(secrets=tmp_path)


def test_the_password_is_in_a_file_that_may_change_and_be_missing(tmp_path):
    store = read("redis://h", secrets=tmp_path)
    assert store.password() == ""
    (tmp_path / "password").write_text("secret\n")
    assert store.password() == "secret"
    (tmp_path / "password").write_bytes(b"\xff" * 10_000)
    assert len(store.password()) <= 4096
    assert store.file("ca.crt") is None
    assert read("redis://h").password() == ""


@pytest.mark.parametrize(
    ("url", "timeout", "said"),
    [
        ("http://h", 0.05, "scheme 'http'"),
        ("redis://", 0.05, "scheme"),
        ("redis://user:secret@h", 0.05, "has a password"),
        ("redis://:secret@h", 0.05, "has a password"),
        ("redis+sentinel://a,b", 0.05, "names no service"),
        ("redis+cluster://a/1", 0.05, "has only 0"),
        ("redis://a/x", 0.05, "number of a database"),
        ("redis://a:x", 0.05, "HOST:PORT"),
        ("redis://a:99999", 0.05, "HOST:PORT"),
        ("redis://a,,b", 0.05, "HOST:PORT"),
        ("redis://[h", 0.05, "is no URL"),
        ("redis://h", 0, "timeout is 0"),
        ("redis://h", 2, "timeout is 2"),
    ],
)
def test_what_names_no_store_is_refused_and_no_password_is_repeated(url, timeout, said):
    with pytest.raises(ValueError, match="--responses-store") as refused:
        read(url, timeout)
    assert said in str(refused.value)
    assert "secret" not in str(refused.value).replace("--responses-store-secrets", "")


def test_a_store_without_the_key_that_seals_is_refused():
    with pytest.raises(ValueError, match="--peer-key-file"):
        read("redis://h", key=None)
