"""Predicts the content of KV tiers beyond the GPUs' memory, and when a copy is quicker than computing. Does no I/O.

    copy(n)    = latency + n x bytes of a token / bandwidth
    compute(n) = n / prefill rate
    break-even = the n at which both are equal: latency / (1 / prefill rate - bytes of a token / bandwidth)

Tiers are inclusive, as engines fill them: computed KV is written through to every tier (vLLM's offloading connector,
LMCache), and each tier evicts the least recently used KV. So a tier holds all that a smaller one holds, and adds only
the rest of its capacity. Per-replica tiers store the Tier-1 prefix once per replica; a shared tier stores it once.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

LINK_SHARE = 0.8
"""Share of a link's raw rate that large copies reach: pinned copies over PCIe 4 x16 run at 25 to 26 of 32 GB/s, as
NVIDIA's bandwidthTest and nvbandwidth report them."""


@dataclass(frozen=True, slots=True)
class TierForecast:
    """The capacity of a KV tier beyond the GPUs' memory, for a number of replicas."""

    room: float
    """Tokens of sessions that it holds, of all replicas together, those in the GPUs' memory included."""
    latency: float
    """Seconds before the first byte of a copy."""
    token: float
    """Seconds that each token of a copy takes."""

    def copy(self, tokens: float) -> float:
        """Return the seconds in which so many tokens are copied."""
        return self.latency + tokens * self.token


@dataclass(frozen=True, slots=True)
class TierKind:
    """A kind of tier, with the figures that apply where none are measured."""

    name: str
    bandwidth: float | None
    """Bytes a second of one replica; None for the GPUs' own link to the host's memory."""
    latency: float
    """Seconds before the first byte: looking the prefix up, scheduling the copy."""
    shared: bool
    """True when one tier serves all replicas, instead of each having its own."""
    text: str


KINDS: Mapping[str, TierKind] = {
    kind.name: kind
    for kind in (
        TierKind("dram", None, 0.010, shared=False, text="host memory over PCIe"),
        TierKind("c2c", 450e9, 0.010, shared=False, text="host memory over NVLink-C2C"),
        TierKind("nvme", 7e9, 0.010, shared=False, text="local NVMe disk"),
        TierKind("rdma", 50e9, 0.025, shared=True, text="400 Gbit/s RDMA"),
        TierKind("tcp", 3.125e9, 0.040, shared=True, text="25 Gbit/s TCP"),
    )
}
"""Bandwidths are raw rates by specification: PCIe x16 of the GPU's generation (`gpus`), NVLink-C2C with 450 GB/s in
each direction (NVIDIA Grace Hopper Superchip Architecture whitepaper), 7 GB/s that NVMe drives on PCIe 4 x4 read in
sequence (data sheets of Samsung 990 PRO, WD SN850X), and the line rates of 400 Gbit/s InfiniBand NDR and 25 Gbit/s
Ethernet. Latencies are in no specification. These are the lower ends of the ranges that an industry article (2025)
reports end to end for a prefix of 1,000 tokens of a small model: 10 to 40 ms from the memory of the machine, 25 to 50
ms from another node over a fast fabric, 40 to 120 ms over another network. The project has not reproduced them:
`promptgroup probe` measures them on a replica (docs/research/policy.md, "What articles claim")."""


@dataclass(frozen=True, slots=True)
class Tier:
    """One tier, as a user describes it."""

    kind: TierKind
    size: float
    """Bytes: of each replica, or of the pool."""
    bandwidth: float | None = None
    """Bytes a second that one replica was measured to copy; None for the kind's."""
    latency: float | None = None
    """Seconds; None for the kind's."""

    @property
    def measured(self) -> bool:
        """True when both figures are the user's own."""
        return self.bandwidth is not None and self.latency is not None

    def filled(self, bandwidth: float, latency: float) -> "Tier":
        """Return the tier with these figures where it has none of its own."""
        own = self.bandwidth if self.bandwidth is not None else bandwidth
        return replace(self, bandwidth=own, latency=self.latency if self.latency is not None else latency)

    def forecast(self, replicas: int, prefix: int, token_bytes: int, link: float) -> TierForecast:
        """Return the tier as input for the prediction for so many replicas.

        Args:
            replicas: at least 1.
            prefix: tokens of Tier 1.
            token_bytes: of KV, over all GPUs of a replica.
            link: bytes a second between the host's memory and all GPUs of a replica, raw.
        """
        raw = link if self.kind.bandwidth is None else self.kind.bandwidth
        bandwidth = self.bandwidth if self.bandwidth is not None else raw * LINK_SHARE
        holders = 1 if self.kind.shared else replicas
        return TierForecast(
            room=max(0.0, self.size / token_bytes - prefix) * holders,
            latency=self.kind.latency if self.latency is None else self.latency,
            token=token_bytes / bandwidth,
        )


def break_even(tier: TierForecast, prefill_rate: float) -> float:
    """Return the tokens from which on a copy is quicker than computing; infinite where it never is."""
    gain = 1 / prefill_rate - tier.token
    return tier.latency / gain if gain > 0 else math.inf


def uses_to_pay(tier: TierForecast, tokens: float, compute: float) -> float:
    """Return the uses from which on writing KV to the tier pays: with fewer uses, computing is quicker.

        write / uses + copy = compute,   write = tokens x bytes of a token / bandwidth

    Args:
        tier: the tier; it is written as fast as it is read.
        tokens: that are written once, and copied with each use.
        compute: seconds in which they are computed.
    """
    gain = compute - tier.copy(tokens)
    return max(1, math.ceil(tokens * tier.token / gain)) if gain > 0 else math.inf


@dataclass(frozen=True, slots=True)
class TierRow:
    """Prediction for a set of tiers: the GPUs' memory, and each tier up to one."""

    tier: Tier | None
    """The last one; None for the GPUs' memory alone."""
    tokens: float
    """KV tokens that it holds: of one replica, or of the pool."""
    cached_histories: float
    """Share of sessions' histories that is cached in this tier or a nearer one, 0 to 1."""
    hit_rate: float
    """Share of prompt tokens that is cached, 0 to 1, with the given number of replicas."""
    traced: float | None
    """The same by the reuse distances of a trace; None without one."""
    copy: float | None
    """Seconds in which the mean history is copied."""
    break_even: float | None
    """Tokens from which on a copy is quicker than computing."""
    uses: float | None
    """Uses of the mean history from which on it was worth writing; infinite where none is."""
    saved: float | None
    """GPU-seconds of a replica that each use saves: computing the mean history, less its copy; below 0 it costs."""
    needed: int | None
    """Replicas that meet the target and the operator's limits; None when no number does."""


@dataclass(frozen=True, slots=True)
class PoolVerdict:
    """Verdict on a KV pool that holds everything, given when no tier was specified."""

    pays: bool | None
    """None: it depends; to be measured."""
    message: str


MARGIN = 2.0
"""A copy that is quicker than computing by this factor pays even if the network has half of its nominal bandwidth."""


def judge(replicas: int, with_pool: int, compute: float, copy: float, way: str) -> PoolVerdict:
    """Judge whether a pool pays for sessions that return with their history.

    Args:
        replicas: number that is needed without a pool.
        with_pool: number that is needed if every history is cached.
        compute: seconds in which a replica computes the mean history.
        copy: seconds in which the pool copies it.
        way: name of the network that it is copied over, for people.
    """
    if with_pool >= replicas:
        return PoolVerdict(False, "does not pay: it takes as many replicas with one")
    facts = (
        f"{with_pool} instead of {replicas} replicas would do; a lost history is computed in {compute * 1000:,.0f} ms "
        f"and copied in {copy * 1000:,.0f} ms over {way}"
    )
    if copy >= compute:
        return PoolVerdict(False, f"does not pay: {facts}; --tier compares quicker ones")
    if copy * MARGIN > compute:
        return PoolVerdict(None, f"to be measured: {facts}; --tier compares others")
    return PoolVerdict(True, f"pays: {facts}; --tier compares others")


_SIZE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(GiB|TiB|GB|TB)", re.ASCII)
_RATE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(GB|Gbit)/s", re.ASCII)
_TIME = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(us|ms|s)", re.ASCII)
_BYTES = {"GiB": 2.0**30, "TiB": 2.0**40, "GB": 1e9, "TB": 1e12}
_RATES = {"GB": 1e9, "Gbit": 1e9 / 8}
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
FORM = "KIND=SIZE[,BANDWIDTH][,LATENCY], as in dram=64GiB or tcp=2TiB,3GB/s,15ms"


def parse(text: str) -> Tier:
    """Read a tier from its text.

    Raises:
        ValueError: with the part that is wrong and the expected form.
    """
    name, _, rest = text.partition("=")
    kind = KINDS.get(name)
    if kind is None:
        raise ValueError(f"{name!r} is not a kind of tier: write one of {', '.join(KINDS)}, in {FORM}")
    size, *further = rest.split(",")
    result = _SIZE.fullmatch(size)
    if result is None or float(result[1]) == 0:
        raise ValueError(f"{size!r} is not a size above 0: write {FORM}")
    bandwidth = latency = None
    for part in further:
        if rate := _RATE.fullmatch(part):
            bandwidth = float(rate[1]) * _RATES[rate[2]]
        elif time := _TIME.fullmatch(part):
            latency = float(time[1]) * _SECONDS[time[2]]
        else:
            raise ValueError(f"{part!r} is neither a bandwidth nor a latency: write {FORM}")
    if bandwidth == 0:
        raise ValueError(f"{text!r} copies nothing: write a bandwidth above 0")
    return Tier(kind, float(result[1]) * _BYTES[result[2]], bandwidth, latency)


def forecasts(
    tiers: Sequence[Tier], replicas: int, prefix: int, token_bytes: int, link: float
) -> tuple[TierForecast, ...]:
    """Return all tiers as input for the prediction for so many replicas; arguments as of `Tier.forecast`."""
    return tuple(tier.forecast(replicas, prefix, token_bytes, link) for tier in tiers)
