import asyncio
import base64
import datetime as dt
import json
import stat
from dataclasses import replace

import pytest

from promptgroup_router.access.authenticator import Authenticator
from promptgroup_router.access.issuer import Issuer, IssuerId, UnknownKeyError
from promptgroup_router.access.keyring import Keyring, SecretRef
from promptgroup_router.base.authorities import Authorities, bundle_of
from promptgroup_router.feed.key_copy import KeyCopy
from support.enginecerts import BY_NAME, EngineCerts
from support.fakeengine import engines, until
from support.fakekube import fake_kube
from support.keys import BY_KEY, KEY_A, KEY_B
from support.routerprocess import has, started
from support.tables import group, revision, slot
from support.tokens import NOW, by_token, jwk, jwks, publishing, token
from support.wire import ask, chat, post

REF = SecretRef("chat", "keys")
BUNDLE = bundle_of("chat", BY_NAME)


def base64_of(text):
    return base64.b64encode(text.encode()).decode()


class Case:
    """A router's books, and the copy of them in a folder."""

    def __init__(self, folder, salt=b"salt of a process", key_file=None):
        self.path = folder / "table.json.keys"
        self.keyring, self.authorities = Keyring(salt), Authorities()
        self.authenticator = Authenticator(self.keyring)
        self.copy = KeyCopy(self.path, self.authenticator, self.authorities, key_file)

    def whose(self, key):
        found = self.keyring.whose(key.encode(), "chat", ("keys",))
        return found.name if found is not None else None


@pytest.fixture
def kept(tmp_path):
    case = Case(tmp_path)
    case.keyring.learn_keys(REF, {"team-a": KEY_A.encode(), "team-b": KEY_B.encode()})
    case.keyring.learn_credentials(SecretRef("chat", "engine-key"), {"key": b"engine-key-0123456789"})
    case.copy.save()
    return case


def test_another_process_knows_the_keys_and_their_callers(kept, tmp_path):
    case = Case(tmp_path, b"salt of another process")
    case.copy.restore()
    assert (case.whose(KEY_A), case.whose(KEY_B), case.whose("sk-" + "x" * 24)) == ("team-a", "team-b", None)
    assert case.keyring.unread("chat", ("keys",)) == ""
    case.keyring.learn_keys(REF, {"team-c": KEY_A.encode()})  # what is read later counts
    assert (case.whose(KEY_A), case.whose(KEY_B)) == ("team-c", None)


def test_the_file_has_no_key_and_is_for_its_owner_alone(kept):
    content = kept.path.read_bytes()
    for secret in (KEY_A, KEY_B, "engine-key-0123456789"):
        assert secret.encode() not in content
        assert secret.encode().hex().encode() not in content
    assert stat.S_IMODE(kept.path.stat().st_mode) == 0o600


def test_equal_keys_have_different_hashes_in_the_files_of_different_routers(kept, tmp_path):
    other = Case(tmp_path / "..", b"salt of another process")
    other.keyring.learn_keys(REF, {"team-a": KEY_A.encode()})
    assert not set(other.keyring.hashes()[REF]) & set(kept.keyring.hashes()[REF])


def test_a_secret_without_keys_is_remembered_as_read(tmp_path):
    case = Case(tmp_path)
    case.keyring.learn_keys(REF, {})
    case.copy.save()
    later = Case(tmp_path)
    later.copy.restore()
    assert later.keyring.unread("chat", ("keys",)) == ""


def test_authorities_are_kept_too(tmp_path):
    case, pem = Case(tmp_path), EngineCerts(tmp_path / "certs").ca.encode()
    case.authorities.learn(BUNDLE, pem)
    case.copy.save()
    later = Case(tmp_path)
    later.copy.restore()
    assert later.authorities.bundles() == {BUNDLE: pem}


@pytest.fixture
def shared_key(tmp_path):
    path = tmp_path / "peers.key"
    path.write_bytes(b"k" * 32)
    return path


CREDENTIAL = SecretRef("chat", "engine-key")


def sealed(folder, key_file):
    case = Case(folder, key_file=key_file)
    case.keyring.learn_credentials(CREDENTIAL, {"key": b"engine-key-0123456789"})
    case.copy.save()
    return case


def restored(folder, key_file):
    case = Case(folder, b"salt of another process", key_file)
    case.copy.restore()
    return case.keyring.credential("chat", "engine-key/key")


def test_credentials_for_engines_are_sealed_with_the_key_that_routers_share(tmp_path, shared_key):
    case = sealed(tmp_path, shared_key)
    assert b"engine-key-0123456789" not in case.path.read_bytes()
    assert b"engine-key-0123456789".hex().encode() not in case.path.read_bytes()
    assert restored(tmp_path, shared_key) == b"engine-key-0123456789"
    before = case.path.read_bytes()
    case.keyring.learn_credentials(CREDENTIAL, {"key": b"another-key-0123456789"})
    case.copy.save()
    assert case.path.read_bytes() != before
    assert restored(tmp_path, shared_key) == b"another-key-0123456789"
    shared_key.write_bytes(b"o" * 32)  # whoever starts later has the new one alone
    case.copy.save()
    assert restored(tmp_path, shared_key) == b"another-key-0123456789"
    case.keyring.keep_credentials(frozenset())
    case.copy.save()
    assert restored(tmp_path, shared_key) == b""


def test_credentials_for_engines_need_the_same_key(tmp_path, shared_key):
    case = sealed(tmp_path, shared_key)
    shared_key.write_bytes(b"o" * 32)
    assert restored(tmp_path, shared_key) == b""
    assert restored(tmp_path, None) == b""
    shared_key.write_bytes(b"k" * 32)
    content = json.loads(case.path.read_text())
    flipped = bytearray.fromhex(content["sealed"])
    flipped[-1] ^= 1
    for changed in (flipped.hex(), content["sealed"][:60], "00"):
        case.path.write_text(json.dumps(content | {"sealed": changed}))
        assert restored(tmp_path, shared_key) == b""


@pytest.mark.parametrize("content", [None, b"short"])
def test_without_a_shared_key_no_credential_is_kept(tmp_path, content):
    key_file = tmp_path / "peers.key"
    if content is not None:
        key_file.write_bytes(content)
    case = sealed(tmp_path, key_file)
    assert json.loads(case.path.read_text())["sealed"] == ""


ISSUER = IssuerId("https://issuer.example/keys", ("RS256",))


def learned(case, content):
    case.authenticator.issuers[ISSUER] = issuer = Issuer()
    issuer.learn(content, 1.0)
    case.copy.save()


def test_the_keys_of_issuers_are_kept_and_nothing_else_of_what_they_publish(tmp_path):
    case = Case(tmp_path)
    doc = {"keys": [jwk("one") | {"x5c": ["c"], "more": 1}, {"kty": "oct", "k": "symmetric"}, 7], "secret": "s3cret"}
    learned(case, json.dumps(doc).encode())
    for absent in ("x5c", "symmetric", "s3cret"):
        assert absent not in case.path.read_text()
    later = Case(tmp_path)
    later.copy.restore()
    caller = later.authenticator.issuers[ISSUER].caller(token(), by_token(), 0.0, NOW)
    assert caller.name == "team-a"
    learned(case, jwks("two"))  # replaced: the file follows
    later = Case(tmp_path)
    later.copy.restore()
    with pytest.raises(UnknownKeyError):  # the issuer has not been asked yet
        later.authenticator.issuers[ISSUER].caller(token(), by_token(), 0.0, NOW)


def test_what_an_issuer_said_since_is_not_replaced_by_the_file(tmp_path):
    learned(Case(tmp_path), jwks("one"))
    later = Case(tmp_path)
    later.authenticator.issuers[ISSUER] = issuer = Issuer()
    issuer.learn(jwks("two"), 1.0)
    later.copy.restore()
    assert issuer.caller(token("two"), by_token(), 0.0, NOW).name == "team-a"


def test_the_file_is_written_only_when_something_has_changed(kept):
    kept.path.unlink()
    kept.keyring.learn_keys(REF, {"team-a": KEY_A.encode(), "team-b": KEY_B.encode()})
    kept.copy.save()
    assert not kept.path.exists()
    for change in (
        lambda: kept.keyring.learn_keys(REF, {"team-a": KEY_B.encode()}),
        lambda: kept.keyring.keep(frozenset()),
    ):
        change()
        kept.copy.save()
        assert kept.path.exists()
        kept.path.unlink()


def broken(**fields):
    return {"format": 1, "salt": "00", "secrets": [], "bundles": []} | fields


SECRET = {"namespace": "chat", "name": "keys"}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        broken(format=2),
        broken(salt="x"),
        broken(salt="00" * 65),
        broken(secrets=[1]),
        broken(secrets=[{**SECRET, "hashes": {"00": "team-a"}}]),
        broken(secrets=[{**SECRET, "hashes": {"00" * 16: "no name"}}]),
        broken(secrets=[{**SECRET, "hashes": []}]),
        broken(bundles=[{"namespace": "chat"}]),
        broken(issuers=1),
        broken(issuers=[{"uri": "https://issuer.example/keys", "algorithms": ["RS256"]}]),
        broken(issuers=[{"uri": 1, "algorithms": ["RS256"], "keys": [jwk("one")]}]),
        broken(issuers=[{"uri": "https://issuer.example/keys", "algorithms": [[]], "keys": [jwk("one")]}]),
        broken(issuers=[{"uri": "https://issuer.example/keys", "algorithms": ["HS256"], "keys": [{"kty": "oct"}]}]),
        broken(issuers=[{"uri": "u", "algorithms": [], "keys": [jwk("one"), {"kty": [], "more": "x" * 300_000}]}]),
        broken(sealed="x"),
        broken(sealed=1),
    ],
    ids=lambda content: str(content)[:60],
)
def test_a_file_that_is_no_copy_is_said_and_nothing_is_taken_from_it(tmp_path, caplog, content):
    case = Case(tmp_path)
    case.path.write_text(content if isinstance(content, str) else json.dumps(content))
    case.copy.restore()
    assert "copy of the keys not read" in caplog.text
    assert case.keyring.unread("chat", ("keys",)) == "keys"


def test_without_a_file_there_is_nothing_to_say(tmp_path, caplog):
    Case(tmp_path).copy.restore()
    assert caplog.text == ""


def test_a_file_that_cannot_be_written_stops_nothing(tmp_path, caplog):
    case = Case(tmp_path / "none")
    case.keyring.learn_keys(REF, {"team-a": KEY_A.encode()})
    case.copy.save()
    assert "copy of the keys not written" in caplog.text


@pytest.mark.heavy
def test_a_router_that_is_killed_and_starts_while_the_api_server_is_away_knows_its_callers(tmp_path):
    async def test():
        folder = tmp_path / "kube"
        folder.mkdir()
        cache = tmp_path / "table.json"
        flags = ("--service-account-dir", str(folder), "--cache-file", str(cache), "--allow-networks", "127.0.0.0/8")
        async with engines(1) as (engine,):
            async with fake_kube(folder) as kube:
                where = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(kube.port)}
                slots = (replace(slot(0), address=engine.address),)
                kube.put(group("support", revision(slots=slots, known=False), access=BY_KEY))
                kube.put_data("chat", "secrets", "keys", {"team-a": base64_of(KEY_A)})
                async with started(*flags, **where) as router:
                    await until(lambda: has(tmp_path / "table.json.keys", "team-a"), "the copy", 20)
                    await until(lambda: has(cache, engine.address), "a copy of the table with the replica")
                    assert (await ask(router.port, post(chat(), f"x-api-key: {KEY_A}"))).status == 200
                    router.process.kill()
            async with started(*flags, **where) as router:  # nobody listens there any more
                assert (await ask(router.port, post(chat(), f"x-api-key: {KEY_A}"))).status == 200
                answer = await ask(router.port, post(chat(), f"x-api-key: {KEY_B}"))
                assert (answer.status, answer.json["error"]["code"]) == (401, "invalid_api_key")
            for path in tmp_path.glob("table.json*"):
                assert stat.S_IMODE(path.stat().st_mode) == 0o600
                assert KEY_A not in path.read_text()

    asyncio.run(asyncio.wait_for(test(), 60))


@pytest.mark.heavy
def test_a_router_that_starts_while_api_server_and_issuer_are_away_judges_tokens_and_is_let_in_by_engines(tmp_path):
    async def test():
        folder, key_file = tmp_path / "kube", tmp_path / "peers.key"
        folder.mkdir()
        key_file.write_bytes(b"k" * 32)
        cache, copy = tmp_path / "table.json", tmp_path / "table.json.keys"
        flags = ("--service-account-dir", str(folder), "--cache-file", str(cache), "--allow-networks", "127.0.0.0/8")
        flags += ("--peers", "localhost", "--peer-key-file", str(key_file))
        end = int(dt.datetime.now(dt.UTC).timestamp()) + 3600
        bearing = "Authorization: Bearer " + token(exp=end).decode()
        async with engines(1) as (engine,):
            async with fake_kube(folder) as kube, publishing(tmp_path) as issuer:
                flags += ("--issuer-ca", str(issuer.ca))
                where = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(kube.port)}
                slots = (replace(slot(0), address=engine.address, credential="engine-key/key"),)
                access = by_token(issuer.uri)
                kube.put(group("support", revision(slots=slots, known=False), access=access))
                kube.put_data("chat", "secrets", "engine-key", {"key": base64_of("engine-key-0123456789")})

                def kept():
                    content = json.loads(copy.read_text()) if copy.exists() else {}
                    return content.get("issuers") and content["sealed"]

                async with started(*flags, **where) as router:
                    await until(kept, "the copy", 20)
                    await until(lambda: has(cache, engine.address), "a copy of the table with the replica")
                    assert (await ask(router.port, post(chat(), bearing))).status == 200
                    router.process.kill()
            async with started(*flags, **where) as router:  # nobody listens at either any more
                assert (await ask(router.port, post(chat(), bearing))).status == 200
                assert engine.requests[-1].head.fields[b"authorization"] == b"Bearer engine-key-0123456789"
                other = "Authorization: Bearer " + token(exp=end, aud="other").decode()
                assert (await ask(router.port, post(chat(), other))).status == 401

    asyncio.run(asyncio.wait_for(test(), 60))
