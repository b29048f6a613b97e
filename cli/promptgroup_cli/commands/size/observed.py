"""Sizes a running group by Prometheus: predicts other numbers of replicas under the observed load.

The model is the one that the operator sizes by, so that its next decision can be predicted.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from promptgroup_cli.base.errors import ReachError
from promptgroup_cli.base.text import columns, duration, fact
from promptgroup_cli.commands.size.answer import MOST
from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_operator.api.prompt_group import EngineType
from promptgroup_operator.base.redacted_url import redacted_url
from promptgroup_operator.base.settings import Settings
from promptgroup_operator.engines.dialects.registry import DIALECTS
from promptgroup_operator.load.engine_history import EngineHistory
from promptgroup_operator.load.load_source import LoadSubject
from promptgroup_operator.load.prometheus import Prometheus
from promptgroup_operator.load.prometheus_api import PrometheusError
from promptgroup_operator.sizing.limits import Limit, Target, exceeded, least_replicas
from promptgroup_operator.sizing.model import fit
from promptgroup_operator.world.engine_facts import Measured
from promptgroup_operator.world.load import GroupLoad
from promptgroup_operator.world.snapshot import Key

AROUND = 2
"""Numbers of replicas shown above and below the present one."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """Prediction for a number of replicas."""

    replicas: int
    hit_rate: float
    utilization: float
    ttft: float
    """Seconds to the first token, p95."""
    lacks: Limit | None


@dataclass(frozen=True, slots=True)
class ObservedSize:
    """The sizing of a running group."""

    observed: float
    """Mean number of replicas while the load was observed."""
    rate: float
    prompt_tokens: float
    """Mean prompt tokens of a request."""
    needed: int | None
    """Replicas that meet all limits; None when no number that was tried does."""
    prospects: tuple[Prospect, ...]


def load(arguments: argparse.Namespace, now: datetime) -> GroupLoad:
    """Return the load that Prometheus observed of the group.

    Raises:
        ReachError: it does not answer; the message has the reason.
    """
    namespace, name = arguments.group
    settings = Settings(
        prometheus_url=arguments.from_prometheus,
        prometheus_token_file=arguments.prometheus_token_file,
        prometheus_ca_file=arguments.prometheus_ca_file,
    )
    subject = LoadSubject(
        key=Key(namespace, name),
        fingerprint=Fingerprint(arguments.revision),  # its first digits, which are all that metrics have
        names=DIALECTS[EngineType(arguments.engine)].metrics,
        deployment=f"{name}-{arguments.revision}",
        pods={},
        serving={},
        measured=Measured(arguments.kv_tokens, round(arguments.prefill_rate), arguments.prompt_tokens),
        declared_bytes=0,
    )
    source = Prometheus(settings, EngineHistory())
    try:
        return source.ask(subject, now)
    except PrometheusError as error:
        raise ReachError(f"--from-prometheus {redacted_url(arguments.from_prometheus)}: {error}") from None
    finally:
        source.close()


def observed_size(load: GroupLoad, target: float | None, most: int = MOST) -> ObservedSize:
    """Size a running group.

    Args:
        load: the observed load.
        target: seconds to the first token, p95; None when the load alone counts.
        most: largest number of replicas to try.

    Raises:
        ValueError: the load has too little data; the message says why.
    """
    model = fit(load)
    if model is None:
        raise ValueError(
            load.stale or "too little is known of the engines: there are no readings, or no measured prefill rate"
        )
    desired, present = Target(target), max(1, round(model.observed))
    needed = least_replicas(model, 1, most, desired)
    shown = sorted({*range(max(1, present - AROUND), present + AROUND + 1), *((needed,) if needed <= most else ())})
    return ObservedSize(
        observed=model.observed,
        rate=model.requests,
        prompt_tokens=model.prompt_tokens / model.requests if model.requests else 0.0,
        needed=needed if needed <= most else None,
        prospects=tuple(
            Prospect(n, model.hit_rate(n), model.utilisation(n), model.ttft(n), exceeded(model, n, desired))
            for n in shown
        ),
    )


_HEADS = ("replicas", "hit rate", "TTFT p95", "busy", "lacks")


def table(size: ObservedSize) -> str:
    """Return the text for people."""
    return "\n".join(_lines(size))


def document(size: ObservedSize) -> str:
    """Return the JSON for programs; seconds, and shares of 0 to 1."""
    return json.dumps(
        {
            "observed": {
                "replicas": round(size.observed, 2),
                "requestsPerSecond": round(size.rate, 3),
                "promptTokens": round(size.prompt_tokens),
            },
            "replicas": size.needed,
            "prospects": [
                {
                    "replicas": prospect.replicas,
                    "hitRate": round(prospect.hit_rate, 4),
                    "utilization": round(prospect.utilization, 4),
                    "ttftP95": round(prospect.ttft, 4),
                    "lacks": prospect.lacks,
                }
                for prospect in size.prospects
            ],
        },
        indent=2,
    )


def _lines(size: ObservedSize) -> Iterator[str]:
    requests = f"{size.rate:,.1f} requests/s of {size.prompt_tokens:,.0f} tokens"
    yield from fact("Observed", f"{size.observed:.1f} replicas, {requests}")
    yield from fact("Needs", f"{size.needed}" if size.needed is not None else "more replicas than were tried")
    yield ""
    yield from columns([_HEADS, *map(_prospect, size.prospects)], right=range(4))


def _prospect(prospect: Prospect) -> Sequence[str]:
    lacks = prospect.lacks.value if prospect.lacks is not None else "-"
    figures = f"{prospect.hit_rate:.1%}", duration(prospect.ttft), f"{prospect.utilization:.0%}"
    return str(prospect.replicas), *figures, lacks
