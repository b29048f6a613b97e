"""HTTP to one replica: warm-up requests, refreshes, and metrics.

The chat API is used because all supported engines serve it. The engine is an arbitrary image of a user, so every
response has a deadline as a whole and a size limit that fits its use, and is never decompressed.
"""

import json
import re
import threading
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import urllib3

from promptgroup_contract.names import HEADER_RANK, HEADER_WARMUP
from promptgroup_contract.table import Prompt
from promptgroup_operator.base import deadline, unreachable
from promptgroup_operator.base.errors import EngineError
from promptgroup_operator.engines import engine_metrics
from promptgroup_operator.engines.connections import PLAIN, EngineAccess, EnginePools
from promptgroup_operator.engines.dialects.dialect import Dialect
from promptgroup_operator.world.engine_facts import prefill_rate
from promptgroup_operator.world.snapshot import Reading, Spent
from promptgroup_operator.world.warming import Evidence, RefreshAnswer

PREFILL_SECONDS = 120.0
"""Time limit in seconds for a chat response: a prefill of 100,000 tokens at 1,000 per second, with a margin."""
ASK_SECONDS = 3.0
"""Time limit in seconds for a metrics page, a response of the tokenizer, or the engine's settings."""

MAX_PAGE = 1 << 20
"""Maximum size of a metrics page in bytes; a page of vLLM has 80 KB."""
MAX_CHAT = 1 << 16
"""Maximum size of a chat response in bytes, which has one token."""
MAX_STATE = 1 << 18
"""Maximum size of an engine's settings in bytes; those of SGLang have 20 KB."""
TOKEN_BYTES = 8
"""Maximum number of bytes in the tokenizer's response per byte of the request: one token, its separator, a margin."""
MAX_TOKENS = 10**9
"""Maximum of a valid token count in a usage."""
BUSY = 400
"""Status of SGLang's response to a reset while requests run."""
HELD = b'{"success":false}'
"""vLLM's response, without spaces, to a reset while blocks are in use; its status is 200."""

_PARSING = threading.Lock()
"""Held while a response is parsed, since this takes up to twenty times its size in memory."""


class TimedAnswer(NamedTuple):
    """The measurements of one request."""

    prompt: int
    """Tokens of the prompt."""
    cached: int
    """Those of `prompt` that were cached, in the GPU's memory or a KV tier."""
    tiered: int
    """Upper bound of those `cached` tokens that came from a KV tier."""
    seconds: float


class EngineClient:
    """A client of engines with the same credential and trust. Safe to use from many threads.

    Args:
        access: the credential that is sent with each request, and the trust by which engines are verified.
        pools: the connection pools, if they are shared with other clients.
    """

    def __init__(self, access: EngineAccess = PLAIN, pools: EnginePools | None = None) -> None:
        self._access = access
        self._pools = pools if pools is not None else EnginePools()

    def close(self) -> None:
        """Close the idle connections."""
        self._pools.close()

    def read(self, address: str, dialect: Dialect, rank: int | None = None) -> Reading:
        """Return the engine's counters, or those of one of its data-parallel ranks.

        Raises:
            EngineError: there was no response in time, or it has no metrics.
        """
        return engine_metrics.reading(self.text(address, dialect.metrics.path), dialect.metrics, rank)

    def text(self, address: str, path: str = "/metrics", limit: int = MAX_PAGE) -> str:
        """Return the metrics page of any process that serves one.

        Args:
            address: host and port.
            path: path of the page.
            limit: maximum size of the page in bytes.

        Raises:
            EngineError: there was no response in time, or a longer one.
        """
        page = self._request("GET", address, path, None, seconds=ASK_SECONDS, limit=limit)
        return page.decode("latin-1")  # decodes any bytes; the parsed parts of a page are ASCII

    def ask(self, address: str, path: str, limit: int) -> dict[str, Any]:
        """Return the JSON object that an engine answers to GET, in at most `limit` bytes.

        Raises:
            EngineError: there was no response in time, a longer one, or it is no JSON object.
        """
        return self._json("GET", address, path, None, seconds=ASK_SECONDS, limit=limit)

    def send(self, address: str, path: str, body: Mapping[str, Any], seconds: float) -> None:
        """Send a JSON object by POST, for which the engine has `seconds`; what it answers beside 200 is not read.

        Raises:
            EngineError: the engine rejected the request or could not be reached.
        """
        self._request("POST", address, path, body, seconds=seconds, limit=MAX_CHAT)

    def prove(self, address: str, dialect: Dialect, model: str, prompt: Prompt, rank: int | None = None) -> Evidence:
        """Send the Tier-1 prefix, then probe for it, and return the engine's data about the two requests.

        Args:
            address: host and port.
            dialect: of the engine.
            model: name of the model.
            prompt: the Tier-1 prefix.
            rank: the data-parallel rank that the requests address and whose counters are read; None to address none.

        Raises:
            EngineError: the engine rejected a request or could not be reached.
        """
        warm_up, probe = _bodies(model, prompt)
        before = self._reading(address, dialect, rank)
        if self._caching(address, dialect, before) is False:
            return Evidence(None, 0, None, before.step if before is not None else 1, caching=False)
        shared = self._shared_tokens(address, warm_up, probe)
        started = time.monotonic()
        first = self._chat(address, warm_up, rank)
        seconds = time.monotonic() - started
        # Some engines export their gauges only after the first request.
        middle = self._reading(address, dialect, rank) or before
        second = self._chat(address, probe, rank)
        last = self._reading(address, dialect, rank)
        grown, cached = _cached_tokens(dialect, first, second)
        copied, tiered = _tiered(before, middle, grown), _tiered(middle, last, cached)
        spent = _spent((first, grown), (second, cached), tiered=copied + tiered)
        if cached is None:
            cached = _grown(middle, last)
        if grown is None:
            grown = _grown(before, middle)
        return Evidence(
            shared_tokens=shared,
            prompt_tokens=_prompt_tokens(second),
            cached_tokens=cached,
            step=middle.step if middle is not None else 1,
            caching=middle.caching if middle is not None else None,
            kv_tokens=middle.kv_tokens if middle is not None else 0,
            prefill_rate=prefill_rate(_prompt_tokens(first), grown, seconds),
            tiered=tiered,
            copied=copied,
            seconds=seconds,
            spent=spent,
            ranks=last.ranks if last is not None else 0,
            reached=rank is None or middle is None or last is None or last.queries > middle.queries,
        )

    def refresh(
        self,
        address: str,
        dialect: Dialect,
        model: str,
        prompt: Prompt,
        needed: int,
        *,
        any_tier: bool = False,
        rank: int | None = None,
    ) -> RefreshAnswer:
        """Send the Tier-1 prefix. If fewer than `needed` tokens of it were cached, send it again as a probe.

        With `rank` the requests address that data-parallel rank, and only its counters are read.

        Tokens from a KV tier do not count, unless `any_tier` is set. Tier counters are not per request: if the engine
        served prompts of clients meanwhile, the source of the prefix is unknown.

        For an engine that omits a zero, only the second response shows if the first one meant zero.

        Raises:
            EngineError: the engine rejected a request or could not be reached.
        """
        probe, again = _bodies(model, prompt)
        reading = self.read(address, dialect, rank)
        usages = [self._chat(address, probe, rank)]
        (cached,) = _cached_tokens(dialect, *usages)
        middle = self._reading(address, dialect, rank) if dialect.metrics.tells_tiers else None
        first = _tiered(reading, middle, cached)
        left = cached if cached is None or any_tier else cached - first
        if dialect.omits_zero if left is None else left < needed:
            usages.append(self._chat(address, again, rank))
        cached_tokens = _cached_tokens(dialect, *usages)
        last = self._reading(address, dialect, rank) if middle is not None and len(usages) > 1 else middle
        tiers = [first, *([_tiered(middle, last, cached_tokens[-1])] if len(usages) > 1 else [])]
        spent = _spent(*zip(usages, cached_tokens, strict=True), tiered=sum(tiers))
        if any_tier or not any(tiers):
            return RefreshAnswer(reading, cached_tokens[0], cached_tokens[-1], spent)
        if not _alone(reading, last, spent):
            return RefreshAnswer(reading, None, None, spent)
        counted = [item - tier if item is not None else None for item, tier in zip(cached_tokens, tiers, strict=True)]
        return RefreshAnswer(reading, counted[0], counted[-1], spent, copied=tiers[0])

    def time(self, address: str, dialect: Dialect, model: str, text: str) -> TimedAnswer | None:
        """Send a prompt for one token; return its measurements, or None if the engine does not report cached tokens.

        Raises:
            EngineError: the engine rejected the request or could not be reached.
        """
        before = self.read(address, dialect)
        started = time.monotonic()
        usage = self._chat(address, _bodies(model, Prompt(text))[0])
        seconds = time.monotonic() - started
        after = self.read(address, dialect)
        (cached,) = _cached_tokens(dialect, usage)
        if cached is None:
            cached = 0 if dialect.omits_zero else _grown(before, after)
        if cached is None or not _prompt_tokens(usage):
            return None
        return TimedAnswer(_prompt_tokens(usage), cached, _tiered(before, after, cached), seconds)

    def reset(self, address: str, dialect: Dialect) -> bool:
        """Empty the prefix cache in the engine's GPU memory; return False while requests or copies use parts of it.

        Raises:
            EngineError: the engine does not support it, or did not respond.
        """
        if not dialect.reset:
            raise EngineError("this engine has no way to empty its cache")
        try:
            raw = self._request("POST", address, dialect.reset, None, seconds=ASK_SECONDS, limit=MAX_CHAT)
        except EngineError as error:
            if error.status == BUSY:
                return False
            raise
        return re.sub(rb"\s", b"", raw) != HELD

    def _caching(self, address: str, dialect: Dialect, reading: Reading | None) -> bool | None:
        """Return True if prefix caching is on, by the engine's metrics or settings; None if neither reports it."""
        if not dialect.state or (reading is not None and reading.caching is not None):
            return reading.caching if reading is not None else None
        try:
            off = self._json("GET", address, dialect.state, None, seconds=ASK_SECONDS, limit=MAX_STATE).get(
                dialect.state_off
            )
        except EngineError:
            return None
        return not off if isinstance(off, bool) else None

    def _reading(self, address: str, dialect: Dialect, rank: int | None = None) -> Reading | None:
        try:
            return self.read(address, dialect, rank)
        except EngineError:
            return None

    def _chat(self, address: str, body: Mapping[str, Any], rank: int | None = None) -> Mapping[str, Any]:
        answer = self._json(
            "POST", address, "/v1/chat/completions", body, seconds=PREFILL_SECONDS, limit=MAX_CHAT, rank=rank
        )
        usage = answer.get("usage")
        return usage if isinstance(usage, Mapping) else {}

    def _shared_tokens(self, address: str, warm_up: Mapping[str, Any], probe: Mapping[str, Any]) -> int | None:
        """Return the number of common leading tokens of the two prompts, by the engine's own tokenizer and template."""
        try:
            first, second = (self._tokens(address, body) for body in (warm_up, probe))
        except EngineError:
            return None
        if first is None or second is None:
            return None
        return next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), None)

    def _tokens(self, address: str, body: Mapping[str, Any]) -> list[Any] | None:
        limit = MAX_CHAT + TOKEN_BYTES * len(_encoded(body))
        tokens = self._json("POST", address, "/tokenize", _tokenize(body), seconds=ASK_SECONDS, limit=limit).get(
            "tokens"
        )
        return tokens if isinstance(tokens, list) else None

    def _json(
        self,
        method: str,
        address: str,
        path: str,
        body: Mapping[str, Any] | None,
        *,
        seconds: float,
        limit: int,
        rank: int | None = None,
    ) -> dict[str, Any]:
        raw = self._request(method, address, path, body, seconds=seconds, limit=limit, rank=rank)
        try:
            with _PARSING:
                answer = json.loads(raw)
        except (ValueError, RecursionError):
            raise EngineError(f"{path}: the answer is not JSON") from None  # the cause would quote the response
        if not isinstance(answer, dict):
            raise EngineError(f"{path}: the answer is not a JSON object")
        return answer

    def _request(
        self,
        method: str,
        address: str,
        path: str,
        body: Mapping[str, Any] | None,
        *,
        seconds: float,
        limit: int,
        rank: int | None = None,
    ) -> bytes:
        """Send a request and return the response's body, within `seconds` and `limit` bytes as a whole."""
        headers = {"content-type": "application/json", HEADER_WARMUP: "1"}
        if rank is not None:
            headers[HEADER_RANK] = str(rank)
        if self._access.credential:
            headers["authorization"] = f"Bearer {self._access.credential}"
        try:
            with deadline.within(seconds, limit):
                response = self._pools.request(
                    method,
                    address,
                    path,
                    self._access.trust,
                    body=_encoded(body) if body is not None else None,
                    headers=headers,
                    timeout=urllib3.Timeout(connect=min(ASK_SECONDS, seconds), read=seconds),
                    preload_content=False,
                    decode_content=False,
                    redirect=False,
                )
                try:
                    data = response.read(limit + 1, decode_content=False)
                    ended = len(data) <= limit
                    if ended and not response.read(1, decode_content=False):
                        response.release_conn()
                finally:
                    response.close()  # closes a connection that was not released, as its remaining data is not read
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise EngineError(f"{path}: {unreachable.reason(error)}") from error
        if response.status != 200:
            # The response's text is never included: engines quote the prompt in some errors.
            raise EngineError(f"{path}: status {response.status}", status=response.status)
        if not ended:
            raise EngineError(f"{path}: the answer is longer than {limit} bytes")
        return data


def _encoded(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()


def _bodies(model: str, prompt: Prompt) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return two requests that have only the Tier-1 prefix in common."""
    tools = {"tools": json.loads(prompt.tools)} if prompt.tools else {}
    declared = json.loads(prompt.messages) if prompt.messages else []
    system = [{"role": "system", "content": prompt.system}] if prompt.system else []
    return tuple(  # type: ignore[return-value]
        {
            "model": model,
            "messages": [*system, *declared, {"role": "user", "content": text}],
            **tools,
            "max_tokens": 1,
            "temperature": 0,
        }
        for text in ("a", "b")
    )


def _tokenize(body: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key not in ("max_tokens", "temperature")}


def _prompt_tokens(usage: Mapping[str, Any]) -> int:
    return _count(usage.get("prompt_tokens")) or 0


def _count(value: object) -> int | None:
    """Return a count of tokens; None if it is not a whole number in the valid range."""
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else None


def _grown(before: Reading | None, after: Reading | None) -> int | None:
    """Return the cached tokens of the only request between two readings: before a proof there are no others."""
    if before is None or after is None or after.queries <= before.queries:
        return None
    return int(after.hits - before.hits)


def _tiered(before: Reading | None, after: Reading | None, cached: int | None) -> int:
    """Return an upper bound of a request's cached tokens from a KV tier: the counters include other requests."""
    if before is None or after is None:
        return 0
    grown = int(max(0.0, after.tiered - before.tiered))
    return min(grown, cached) if cached is not None else grown


def _alone(before: Reading, after: Reading | None, spent: Spent) -> bool:
    """Return True if no prompts of clients were looked up between two readings."""
    return after is not None and after.queries - before.queries <= spent.queries


def _cached_tokens(dialect: Dialect, *usages: Mapping[str, Any]) -> list[int | None]:
    """Return the cached tokens of each usage; None where they are not reported.

    For an engine that omits a zero, a missing number is zero if another of its responses has one.
    """
    result = []
    for usage in usages:
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
        result.append(_count(cached))
    if dialect.omits_zero and any(result):
        return [item or 0 for item in result]
    return result


def _spent(*requests: tuple[Mapping[str, Any], int | None], tiered: int = 0) -> Spent:
    """Return the requests' share of the engine's counters, by their usage, cached tokens and tokens from tiers."""
    cacheds = [cached for _, cached in requests if cached is not None]
    return Spent(
        sum(_prompt_tokens(usage) for usage, _ in requests),
        sum(cacheds) if len(cacheds) == len(requests) else None,
        len(requests),
        tiered,
    )
