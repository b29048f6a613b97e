"""HTTP to one replica: send the warm-up, read its answer, read its counters.

The chat API is the one that all supported engines serve. Every wait is bounded.
"""

import json
import time
from collections.abc import Mapping
from typing import Any

import urllib3

from promptgroup_operator.base.errors import EngineError
from promptgroup_operator.engines import engine_metrics
from promptgroup_operator.engines.dialect import Dialect
from promptgroup_operator.world.engine_facts import prefill_rate
from promptgroup_operator.world.snapshot import Reading, Spent
from promptgroup_operator.world.warming import Evidence, RefreshAnswer
from promptgroup_router.contract.names import HEADER_WARMUP
from promptgroup_router.contract.table import Prompt

PREFILL_SECONDS = 120.0
"""Longest prefill of a prefix: 100,000 tokens at 1,000 a second, with room."""
ASK_SECONDS = 3.0
"""Longest wait for metrics and tokenizer answers."""
MAX_ANSWER = 32 * 1024 * 1024
"""Longest answer read: token lists of long prompts, metrics of engines with many labels."""


class EngineClient:
    """A pool of connections to engines; safe to use from many threads."""

    def __init__(self) -> None:
        self._pools = urllib3.PoolManager(num_pools=64, maxsize=4, retries=False)

    def close(self) -> None:
        """Close the idle connections."""
        self._pools.clear()

    def read(self, address: str, dialect: Dialect) -> Reading:
        """The engine's counters.

        Raises:
            EngineError: no answer, or one that is not metrics.
        """
        return engine_metrics.reading(self.text(address, dialect.metrics.path), dialect.metrics)

    def text(self, address: str, path: str = "/metrics") -> str:
        """The metrics of any process that serves them, as they are.

        Raises:
            EngineError: no answer.
        """
        return self._request("GET", address, path, None, ASK_SECONDS).decode(errors="replace")

    def prove(self, address: str, dialect: Dialect, model: str, prompt: Prompt) -> Evidence:
        """Send the Tier-1 prefix, then probe for it: what the engine says about the two requests.

        Raises:
            EngineError: the engine refused a request or could not be reached.
        """
        warm_up, probe = _bodies(model, prompt)
        before = self._reading(address, dialect)
        if self._caching(address, dialect, before) is False:
            return Evidence(None, 0, None, before.step if before is not None else 1, caching=False)
        shared = self._shared_tokens(address, warm_up, probe)
        started = time.monotonic()
        first = self._chat(address, warm_up)
        seconds = time.monotonic() - started
        # some engines show their gauges with the first request
        middle = self._reading(address, dialect) or before
        second = self._chat(address, probe)
        found, cached = _cached_tokens(dialect, first, second)
        spent = _spent((first, found), (second, cached))
        if cached is None:
            cached = _grown(middle, self._reading(address, dialect))
        if found is None:
            found = _grown(before, middle)
        return Evidence(
            shared_tokens=shared,
            prompt_tokens=_prompt_tokens(second),
            cached_tokens=cached,
            step=middle.step if middle is not None else 1,
            caching=middle.caching if middle is not None else None,
            kv_tokens=middle.kv_tokens if middle is not None else 0,
            prefill_rate=prefill_rate(_prompt_tokens(first), found, seconds),
            spent=spent,
        )

    def refresh(self, address: str, dialect: Dialect, model: str, prompt: Prompt, needed: int) -> RefreshAnswer:
        """Send the Tier-1 prefix; where fewer than `needed` tokens of it were in cache, probe whether they are now.

        Of an engine that leaves a zero out, only the second answer tells whether the first one meant it.

        Raises:
            EngineError: the engine refused a request or could not be reached.
        """
        probe, again = _bodies(model, prompt)
        reading = self.read(address, dialect)
        usages = [self._chat(address, probe)]
        (cached,) = _cached_tokens(dialect, *usages)
        if dialect.omits_zero if cached is None else cached < needed:
            usages.append(self._chat(address, again))
        found = _cached_tokens(dialect, *usages)
        return RefreshAnswer(reading, found[0], found[-1], _spent(*zip(usages, found, strict=True)))

    def _caching(self, address: str, dialect: Dialect, reading: Reading | None) -> bool | None:
        """Whether prefix caching is on, by the engine's metrics or its settings; None when neither says."""
        if not dialect.state or (reading is not None and reading.caching is not None):
            return reading.caching if reading is not None else None
        try:
            off = self._json("GET", address, dialect.state, None, ASK_SECONDS).get(dialect.state_off)
        except EngineError:
            return None
        return not off if isinstance(off, bool) else None

    def _reading(self, address: str, dialect: Dialect) -> Reading | None:
        try:
            return self.read(address, dialect)
        except EngineError:
            return None

    def _chat(self, address: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        answer = self._json("POST", address, "/v1/chat/completions", body, PREFILL_SECONDS)
        usage = answer.get("usage")
        return usage if isinstance(usage, Mapping) else {}

    def _shared_tokens(self, address: str, warm_up: Mapping[str, Any], probe: Mapping[str, Any]) -> int | None:
        """Tokens that the two prompts begin with, by the engine's own tokenizer and template."""
        try:
            first, second = (
                self._json("POST", address, "/tokenize", _tokenize(body), ASK_SECONDS).get("tokens")
                for body in (warm_up, probe)
            )
        except EngineError:
            return None
        if not isinstance(first, list) or not isinstance(second, list):
            return None
        return next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), None)

    def _json(
        self, method: str, address: str, path: str, body: Mapping[str, Any] | None, seconds: float
    ) -> dict[str, Any]:
        raw = self._request(method, address, path, body, seconds)
        try:
            answer = json.loads(raw)
        except ValueError as error:
            raise EngineError(f"{path}: the answer is not JSON") from error
        if not isinstance(answer, dict):
            raise EngineError(f"{path}: the answer is not a JSON object")
        return answer

    def _request(self, method: str, address: str, path: str, body: Mapping[str, Any] | None, seconds: float) -> bytes:
        try:
            response = self._pools.request(
                method,
                f"http://{address}{path}",
                body=json.dumps(body, ensure_ascii=False).encode() if body is not None else None,
                headers={"content-type": "application/json", HEADER_WARMUP: "1"},
                timeout=urllib3.Timeout(connect=ASK_SECONDS, read=seconds),
                preload_content=False,
                redirect=False,
            )
            try:
                data = response.read(MAX_ANSWER)
            finally:
                response.drain_conn()
                response.release_conn()
        except urllib3.exceptions.HTTPError as error:
            raise EngineError(f"{path}: {type(error).__name__}") from error
        if response.status != 200:
            # never the answer's text: engines quote the prompt in some errors
            raise EngineError(f"{path}: status {response.status}", status=response.status)
        return data


def _bodies(model: str, prompt: Prompt) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two requests that share the Tier-1 prefix and nothing after it."""
    tools = {"tools": json.loads(prompt.tools)} if prompt.tools else {}
    return tuple(  # type: ignore[return-value]
        {
            "model": model,
            "messages": [{"role": "system", "content": prompt.system}, {"role": "user", "content": text}],
            **tools,
            "max_tokens": 1,
            "temperature": 0,
        }
        for text in ("a", "b")
    )


def _tokenize(body: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key not in ("max_tokens", "temperature")}


def _prompt_tokens(usage: Mapping[str, Any]) -> int:
    tokens = usage.get("prompt_tokens")
    return tokens if isinstance(tokens, int) else 0


def _grown(before: Reading | None, after: Reading | None) -> int | None:
    """Cached tokens of the one request between two readings, where its usage does not say: nobody else sends yet."""
    if before is None or after is None or after.queries <= before.queries:
        return None
    return int(after.hits - before.hits)


def _cached_tokens(dialect: Dialect, *usages: Mapping[str, Any]) -> list[int | None]:
    """Cached tokens by each usage; None where it does not say.

    An engine that leaves a zero out means it where another of its answers does say.
    """
    found = []
    for usage in usages:
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
        found.append(cached if isinstance(cached, int) else None)
    if dialect.omits_zero and any(found):
        return [each or 0 for each in found]
    return found


def _spent(*requests: tuple[Mapping[str, Any], int | None]) -> Spent:
    """What requests added to the engine's counters, by their usage and the cached tokens that are known of them."""
    known = [cached for _, cached in requests if cached is not None]
    return Spent(
        sum(_prompt_tokens(usage) for usage, _ in requests),
        sum(known) if len(known) == len(requests) else None,
        len(requests),
    )
