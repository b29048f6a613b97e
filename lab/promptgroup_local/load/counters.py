"""The counters of the engines: a scrape before, a scrape after, and the difference.

The names are vLLM's and SGLang's. A real engine has no count of cold prefixes, as the stand-in has.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

_QUERIES = ("vllm:prefix_cache_queries_total", "sglang:prompt_tokens_total")
_HITS = ("vllm:prefix_cache_hits_total", "sglang:cached_tokens_total")
_REQUESTS = ("vllm:request_success_total", "sglang:num_requests_total")

SCRAPE_SECONDS = 10.0
"""An engine that does not answer a scrape within this is reported, not waited for."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Counters of one engine."""

    queries: float
    """Prompt tokens looked up."""
    hits: float
    """Prompt tokens that were cached."""
    requests: float
    """Requests that ended, for whatever reason."""
    cold: float | None
    """Client requests that met a cold Tier 1; None where the engine does not count them."""

    def since(self, before: "Counters | None") -> "Counters":
        """Return the counts since `before`; an engine that is new or was restarted began at zero."""
        if before is None or before.requests > self.requests or before.queries > self.queries:
            return self
        return Counters(
            self.queries - before.queries,
            self.hits - before.hits,
            self.requests - before.requests,
            None if self.cold is None else self.cold - (before.cold or 0),
        )


@dataclass(frozen=True, slots=True)
class Measured:
    """The engines' own account of a run; None is unknown."""

    hit_rate: float | None
    """Share of prompt tokens that were cached, 0 to 1."""
    imbalance: float | None
    """Most requests on one engine over the mean: 1 is even."""
    cold: float | None
    requests: Mapping[str, float]
    """Requests by engine URL."""


def parse(text: str) -> Counters:
    """Counters from a /metrics page; series of one name are added up."""
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.labels.get("source", "client") == "client":  # warm-up is not the clients' traffic
                sums[sample.name] = sums.get(sample.name, 0) + sample.value
    return Counters(
        queries=_first(sums, _QUERIES),
        hits=_first(sums, _HITS),
        requests=_first(sums, _REQUESTS),
        cold=sums.get("standin_cold_prefix_requests_total"),
    )


def _first(sums: Mapping[str, float], names: Sequence[str]) -> float:
    return next((sums[name] for name in names if name in sums), 0)


async def scrape(urls: Sequence[str]) -> dict[str, Counters]:
    """Counters by engine base URL.

    Raises:
        aiohttp.ClientError, TimeoutError: an engine that does not answer.
    """
    timeout = aiohttp.ClientTimeout(total=SCRAPE_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout, raise_for_status=True) as http:
        pages = await asyncio.gather(*(_page(http, url) for url in urls))
    return {url: parse(page) for url, page in zip(urls, pages, strict=True)}


async def _page(http: aiohttp.ClientSession, url: str) -> str:
    async with http.get(f"{url}/metrics") as response:
        return await response.text()


def measure(before: Mapping[str, Counters], after: Mapping[str, Counters]) -> Measured:
    """Return the counts of the engines in `after` since `before`."""
    changes = {url: counters.since(before.get(url)) for url, counters in after.items()}
    queries = sum(change.queries for change in changes.values())
    requests = {url: change.requests for url, change in changes.items()}
    total = sum(requests.values())
    colds = [change.cold for change in changes.values() if change.cold is not None]
    return Measured(
        hit_rate=sum(change.hits for change in changes.values()) / queries if queries else None,
        imbalance=max(requests.values()) * len(requests) / total if total else None,
        cold=sum(colds) if colds else None,
        requests=requests,
    )
