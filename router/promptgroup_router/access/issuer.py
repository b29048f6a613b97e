"""Checks tokens of issuers: JWTs (RFC 7519) with signatures (RFC 7515) by keys that the issuer publishes (RFC 7517).

PyJWT verifies the signatures. This module limits the size of its input, chooses the key, and caches valid tokens, since
verifying a signature costs a hundred times as much as a look-up.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from promptgroup_contract.access import Access, Caller
from promptgroup_router.access.keyring import is_name

if TYPE_CHECKING:
    from jwt import PyJWK

MAX_TOKEN_BYTES = 16_384
"""Most bytes of a token; those with many groups have some 8 KiB."""
MAX_JWKS_BYTES = 262_144
"""Most bytes of an issuer's keys; large ones have some 20 KiB."""
MAX_KEYS = 64
"""Most keys of an issuer that are used."""
MIN_RSA_BITS = 2048
"""Bits of the shortest RSA key that is used (RFC 7518 section 3.3)."""
MAX_KEY_ID = 256
LONGEST_FIELDS = {"n": 1366, "e": 8, "crv": 16, "x": 128, "y": 128, "alg": 16, "use": 16, "kty": 16}
"""Field of a public key → its most characters: RSA keys have at most 8,192 bits and a small exponent. Other fields are
not passed on. From those of a private key PyJWT would compute the primes, which takes hours for a long one."""
MAX_TIME = 2**53
LEEWAY_SECONDS = 60
"""Tolerated difference of clocks (RFC 7519 section 4.1.4)."""
REMEMBERED_TOKENS = 10_000
"""Most tokens that are cached."""
REMEMBERED_SECONDS = 300.0
"""Longest time for which a token is cached: after it the token is verified again with the issuer's keys."""


_KEPT = frozenset(("kid", *LONGEST_FIELDS))
_KINDS = ("RSA", "EC", "OKP")
_OF_RSA = frozenset(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"))
"""Algorithms of RSA keys. A key of another kind has one by its curve (RFC 7518 section 3.4, RFC 8037)."""


class IssuerId(NamedTuple):
    """An issuer's keys, by the access that names them."""

    jwks_uri: str
    algorithms: tuple[str, ...]


class TokenError(Exception):
    """A token that is not valid. The message has the reason, and no part of the token."""


class UnknownKeyError(Exception):
    """The token's key is not among those of the issuer, or there are none yet."""


class PublicKey:
    """A key for signatures."""

    __slots__ = ("_jwk", "_of_any_rsa")

    def __init__(self, jwk: "PyJWK", *, says_algorithm: bool) -> None:
        """Begin; `says_algorithm` is whether the issuer names the key's one algorithm (RFC 7517 section 4.4)."""
        self._jwk = jwk
        self._of_any_rsa = not says_algorithm and jwk.key_type == "RSA"

    def verifies(self, algorithm: str) -> Any:
        """Return the key for a token of an algorithm that is taken.

        PyJWT takes an RSA key that names none for one of RS256. As the bare key it goes with what the token names.
        """
        return self._jwk.key if self._of_any_rsa and algorithm in _OF_RSA else self._jwk


def parse_jwks(content: bytes) -> dict[str, PublicKey]:
    """Return the keys for signatures that an issuer publishes, by their ids; the key without an id has an empty one.

    Keys that cannot be used are skipped: issuers publish kinds that only some clients support.

    Raises:
        TokenError: the content is no set of keys, or none of them can be used.
    """
    from jwt import PyJWK, PyJWTError  # noqa: PLC0415 - it needs 10 MiB, which routers without tokens save

    try:
        listed = orjson.loads(content).get("keys")
    except (orjson.JSONDecodeError, AttributeError):
        raise TokenError("the answer is no set of keys in JSON") from None
    public_keys: dict[str, PublicKey] = {}
    for item in listed[:MAX_KEYS] if isinstance(listed, list) else ():
        if not isinstance(item, dict) or item.get("kty") not in _KINDS or item.get("use", "sig") != "sig":
            continue  # a symmetric key (`oct`) would let any reader of it sign
        key_id = item.get("kid", "")
        if not isinstance(key_id, str) or len(key_id) > MAX_KEY_ID or (key_id in public_keys and key_id):
            continue
        public = {field: item[field] for field in LONGEST_FIELDS if field in item}
        if any(not isinstance(text, str) or len(text) > LONGEST_FIELDS[field] for field, text in public.items()):
            continue
        try:
            key = PyJWK(public)
        except (PyJWTError, ValueError, TypeError, KeyError, AttributeError):
            continue
        if item["kty"] != "RSA" or key.key.key_size >= MIN_RSA_BITS:
            public_keys[key_id] = PublicKey(key, says_algorithm="alg" in public)
    if not public_keys:
        raise TokenError("the answer has no key that can be used")
    return public_keys


def public_part(content: bytes) -> list[dict[str, str]]:
    """Return the public fields of an issuer's keys, which may be stored: an issuer may publish private ones by mistake.

    Args:
        content: the argument of `parse_jwks`.
    """
    listed = orjson.loads(content)["keys"][:MAX_KEYS]
    keys = [item for item in listed if isinstance(item, dict) and item.get("kty") in _KINDS]
    return [{name: value for name, value in key.items() if name in _KEPT and isinstance(value, str)} for key in keys]


class Issuer:
    """The keys of one issuer, and the tokens that they have signed."""

    def __init__(self) -> None:
        self._keys: dict[str, PublicKey] = {}
        self.content = b""
        """The key set (JWKS) that was read last; empty before the first."""
        self.asked_at: float | None = None
        """Time at which the current keys were requested, in monotonic seconds; None before there are any."""
        self.tried = False
        """True once the keys were requested."""
        self.wanted = False
        """True if the keys should be read soon, for a token with a key that is not among them."""
        self.away = False
        """True if the last read has failed."""
        self._good: OrderedDict[bytes, tuple[Caller, float, float]] = OrderedDict()
        """Hash of a valid token and the access rules → its caller, its expiry, and the end of its time in this
        cache."""

    def learn(self, content: bytes, asked_at: float) -> None:
        """Replace the keys by those that were requested from the issuer at `asked_at`.

        Raises:
            TokenError: the content is no set of keys; the current ones stay in use.
        """
        self._replace(content)
        self.asked_at = asked_at
        self.wanted = False

    def restore(self, content: bytes) -> None:
        """Restore the keys that an earlier process has stored, unless this process has already read newer ones.

        Raises:
            TokenError: the content is no set of keys.
        """
        if self.asked_at is None:
            self._replace(content)

    def _replace(self, content: bytes) -> None:
        self._keys = parse_jwks(content)
        self.content = content
        self._good.clear()

    def caller(self, token: bytes, access: Access, now: float, time: float) -> Caller:
        """Return the caller of a token.

        Args:
            token: as received.
            access: the rules that the token must meet.
            now: when it arrived, in monotonic seconds.
            time: seconds since 1970.

        Raises:
            TokenError: it is not good.
            UnknownKeyError: its key may be one that the issuer has published since its keys were last read.
        """
        if len(token) > MAX_TOKEN_BYTES:
            raise TokenError(f"the token has more than {MAX_TOKEN_BYTES} bytes")
        # groups with the same issuer may require different claims
        requested = repr((access.issuer, access.audiences, access.algorithms, access.name_claim)).encode()
        digest = hashlib.blake2b(
            token, digest_size=24, person=hashlib.blake2b(requested, digest_size=16).digest()
        ).digest()
        known = self._good.get(digest)
        if known is not None and time < known[1] and now < known[2]:
            return known[0]
        caller, ends = self._verified(token, access, now, time)
        self._good[digest] = caller, ends, now + REMEMBERED_SECONDS
        self._good.move_to_end(digest)
        if len(self._good) > REMEMBERED_TOKENS:
            self._good.popitem(last=False)
        return caller

    def _verified(self, token: bytes, access: Access, now: float, time: float) -> tuple[Caller, float]:
        from jwt import InvalidSignatureError, PyJWTError, api_jws  # noqa: PLC0415 - see parse_jwks

        try:
            header: Mapping[str, Any] = api_jws.get_unverified_header(token)
            algorithm, key_id = header.get("alg"), header.get("kid", "")
            if algorithm not in access.algorithms:
                raise TokenError("the token is signed with an algorithm that is not taken")
            key = self._key(key_id)
            if key is None:
                # no key makes a token valid that has expired, or has another audience: the issuer is not queried for it
                _caller_of(_claims(token, None, access, str(algorithm)), access, time)
                self._ask_for_keys(now)
                raise TokenError("the token is signed with a key that its issuer does not publish")
            return _caller_of(_claims(token, key, access, str(algorithm)), access, time)
        except InvalidSignatureError as error:
            if not key_id:  # the only key of the issuer may have been replaced: its tokens name none
                self._ask_for_keys(now)
            raise TokenError(f"the token is not good: {type(error).__name__}") from None
        except (PyJWTError, ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
            raise TokenError(f"the token is not good: {type(error).__name__}") from None

    def _key(self, key_id: object) -> PublicKey | None:
        """Return the key of a token; one without an id has the issuer's only key."""
        if not isinstance(key_id, str):
            return None
        if not key_id and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id)

    def _ask_for_keys(self, now: float) -> None:
        """Have the keys read, unless the current ones were requested after the token had arrived.

        Raises:
            UnknownKeyError: the keys will be read.
        """
        if self.asked_at is None or now >= self.asked_at:
            self.wanted = True
            raise UnknownKeyError


def _claims(token: bytes, key: PublicKey | None, access: Access, algorithm: str) -> Mapping[str, Any]:
    """Return the claims of a token with the required issuer and audience; without a key no signature is verified.

    Raises:
        PyJWTError: it is not good.
    """
    from jwt import decode  # noqa: PLC0415 - see parse_jwks

    claims: Mapping[str, Any] = decode(
        token,
        key.verifies(algorithm) if key is not None else "",
        algorithms=[algorithm],
        audience=list(access.audiences),
        issuer=access.issuer,
        options={
            "verify_signature": key is not None,
            "verify_aud": True,
            "verify_iss": True,
            "require": ["exp", "iss", "aud"],
            "verify_exp": False,
            "verify_nbf": False,
            "verify_iat": False,
        },
    )
    return claims


def _caller_of(claims: Mapping[str, Any], access: Access, time: float) -> tuple[Caller, float]:
    """Return the caller of a token and the end of its time.

    Raises:
        TokenError: it has no caller, or another time.
    """
    ends, begins = claims["exp"], claims.get("nbf", 0)
    # JSON as Python reads it has NaN and infinities, by which a token would never end
    if not all(type(item) in (int, float) and 0 <= item <= MAX_TIME for item in (ends, begins)):
        raise TokenError("the token's exp or nbf is no time")
    if time >= ends + LEEWAY_SECONDS:
        raise TokenError("the token has expired")
    if time < begins - LEEWAY_SECONDS:
        raise TokenError("the token is not valid yet")
    name = claims.get(access.name_claim)
    if not isinstance(name, str) or not is_name(name):
        raise TokenError(f"the token's claim {access.name_claim!r} is no name of a caller")
    return Caller(name), float(ends) + LEEWAY_SECONDS
