"""Recommends the number of replicas of a group, with the reason: the entry point of sizing.

    replicas(spec, SizingInput(current, serving, revision, load, ...), history, now) -> SizingDecision

State that the next pass needs is in `SizingDecision.history`, which the caller stores and passes in again. The decision
is made in this order:

1. Unknown is not zero: the number does not change while the load is unknown.
2. The smallest number within every limit (`limits`), for the pool and for the group's part of it (`shared`). It rises
   neither for a dip in the hit rate that the group's own change caused (`transient`), nor for prompts that differ from
   the declared one (`prompt_drift`). It falls only if fewer replicas stay within the limits by a margin, at the hit
   rate that they would have. Where no proof has measured the prefill rate, a range is estimated from requests: the
   number rises by its fast end and falls by its slow one (`prefill_rate`).
3. Windows and policies (`behavior`), then bounds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_operator.api.prompt_group import PromptGroupSpec, SizingSpec
from promptgroup_operator.base import durations
from promptgroup_operator.sizing import limits, shared, transient
from promptgroup_operator.sizing.behavior import Paced, pace
from promptgroup_operator.sizing.limits import Target
from promptgroup_operator.sizing.model import QUANTILE, Model, fit
from promptgroup_operator.sizing.prefill_rate import FEW, RateRange, at_fastest, from_requests
from promptgroup_operator.sizing.prompt_drift import find_drift, without_drift
from promptgroup_operator.world.engine_facts import MIN_UNCACHED
from promptgroup_operator.world.load import PERIOD, GroupLoad, PoolMember
from promptgroup_operator.world.sizing_history import NEW, Cause, GroupShape, History, Past, Wave

MOST_REQUESTED = 16
"""Maximum recommendation where the operator does not decide the number; or four times the current number, if more."""
COVERED = 0.5
"""Minimum share of the window's replica-seconds that readings must cover."""


@dataclass(frozen=True, slots=True)
class Aspect:
    """A condition beside ScalingActive."""

    status: bool | None
    """None means Unknown."""
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class SizingDecision:
    """A number with its reason, as reason and message of a condition."""

    value: int
    reason: str
    message: str
    active: bool | None
    """Status of the condition ScalingActive: True if the operator decides the number and was able to in this pass, None
    while it is too early."""
    able: Aspect | None = None
    """Condition AbleToScale; None where the operator does not decide the number."""
    limited: Aspect | None = None
    """Condition ScalingLimited; None where the operator does not decide the number."""
    wave: Cause | None = None
    """The change that disturbs the caches in this pass, if any."""
    history: History = NEW
    requested: int | None = None
    """The number that the load requires, before windows, policies and bounds; one above the maximum of the bounds if
    the maximum is too small. Where the operator does not decide the number, it is a recommendation for other
    autoscalers. None where it is unknown."""
    model: Model | None = None
    """The load as a model, also where the operator does not decide the number; None where it is unknown."""
    requeue_after: timedelta | None = None
    """Time to the next pass if no event comes; None when there is no load to follow."""


@dataclass(frozen=True, slots=True)
class SizingInput:
    """The state of a group that sizing uses."""

    current: int | None
    """Desired replicas in the last pass; None when it has none yet."""
    serving: int
    """Number of warm replicas to which routers send requests."""
    revision: Fingerprint
    """Fingerprint that the group wants to serve."""
    load: GroupLoad | None
    releasing: bool = False
    """True if several revisions have replicas: the load is then that of one revision."""
    others: Sequence[PoolMember] = ()
    """The other groups of its pool."""
    start: timedelta | None = None
    """Time that a start of one of its replicas takes, from the pod's creation to its proof of warmth; None before the
    first start."""


@dataclass(frozen=True, slots=True)
class _Advice:
    """The number that the load requires, before windows and bounds are applied."""

    value: int
    reason: str
    why: str


def replicas(spec: PromptGroupSpec, group: SizingInput, history: History, now: datetime) -> SizingDecision:
    """Return the replicas of all revisions together, without those that a release adds."""
    if spec.sizing is not None:
        sizing = spec.sizing  # the last replica is decided on in `sleep`
        sizing = sizing if sizing.min_replicas else sizing.model_copy(update={"min_replicas": 1})
        return decide(sizing, group, history, now)
    if spec.replicas is not None:
        return _fixed(spec.replicas, f"spec.replicas asks for {spec.replicas}", group, history, now)
    text = "neither spec.replicas nor spec.sizing is set, so the group has one replica"
    return _fixed(1, text, group, history, now)


def least(spec: PromptGroupSpec) -> int:
    """Return the minimum number of replicas that a spec requires, independent of the load."""
    if spec.replicas is not None:
        return spec.replicas
    return spec.sizing.min_replicas if spec.sizing is not None else 1


def _fixed(value: int, message: str, group: SizingInput, history: History, now: datetime) -> SizingDecision:
    """Return a number that sizing does not decide; the load is still analysed, so that it can be explained."""
    history, wave = _disturbance(value, group, history, now)
    load = group.load
    model = requested = None
    if load is not None and _missing(load) is None:
        model = fit(load)
        unbounded = SizingSpec(max_replicas=max(MOST_REQUESTED, 4 * value))
        coming = _coming(group, value, history, now)
        requested = _advice(unbounded, group, load, value, wave, now=now, coming=coming).value
    return SizingDecision(
        value,
        "FixedReplicas",
        message,
        active=False,
        wave=wave.cause if wave is not None else None,
        history=history,
        requested=requested,
        model=model,
        requeue_after=PERIOD if load is not None and _tells(load) else None,
    )


def _tells(load: GroupLoad) -> bool:
    """Return True if the next reading may change the result: readings have just begun, or there are requests."""
    return load.early or (load.engines is not None and not load.stale and not is_quiet(load))


def _disturbance(desired: int, group: SizingInput, history: History, now: datetime) -> tuple[History, Wave | None]:
    """Return the history with the group's own changes, and the change that still disturbs the caches, if any."""
    shape = GroupShape(desired, group.serving, group.revision, group.releasing)
    wave = transient.current_wave(history.wave, history.shape, shape, history.calm, now)
    disturbed = wave is not None and now - wave.at < transient.settling_time(group.load)
    engines = group.load.engines if group.load is not None else None
    calm = history.calm if disturbed or engines is None else engines.hit_rate
    return replace(history, shape=shape, wave=wave, calm=calm), wave if disturbed else None


def decide(sizing: SizingSpec, group: SizingInput, history: History, now: datetime) -> SizingDecision:
    """Return the number of replicas of a group that the operator sizes."""
    low, high = sizing.min_replicas, sizing.max_replicas
    current = group.current if group.current is not None else low
    history, wave = _disturbance(current, group, history, now)
    cause = wave.cause if wave is not None else None
    missing = _missing(group.load)
    if missing is not None:
        return _held(missing, min(max(current, low), high), sizing, cause, history)
    assert group.load is not None  # noqa: S101 - nothing is missing
    advice = _advice(sizing, group, group.load, current, wave, now=now, coming=_coming(group, current, history, now))
    return replace(_paced(sizing, current, advice, history, now), wave=cause, model=fit(group.load))


def _coming(group: SizingInput, current: int, history: History, now: datetime) -> bool:
    """Return True while replicas start that were wanted so recently that a usual start is not over yet."""
    if group.start is None or group.serving >= current or history.wave is None:
        return False
    return now - history.wave.at < group.start


def _missing(load: GroupLoad | None) -> Aspect | None:
    """Return the reason why the load cannot be evaluated; None when it can."""
    if load is None:
        return Aspect(False, "FailedGetMetrics", "because no load has been observed yet")
    if load.early and (load.stale or load.engines is None or load.engines.coverage < COVERED):
        return Aspect(None, "AwaitingMetrics", "until the first load sample arrives")
    if load.stale:
        return Aspect(False, "FailedGetMetrics", f"because {load.stale}")
    engines = load.engines
    if engines is None or engines.coverage < COVERED:
        covered = engines.coverage if engines is not None else 0
        text = (
            f"because only {covered:.0%} of the last {load.seconds:.0f} s was read from the engines: check that their "
            "metrics endpoints answer"
        )
        return Aspect(False, "FailedGetMetrics", text)
    if fit(load) is None:
        text = (
            "because the engines' prefill rate is unknown: a warm-up measures it on a cold engine if the prompt has at "
            f"least {MIN_UNCACHED} tokens; with a shorter prompt it is estimated from requests, once {FEW} of them "
            "arrive within a window"
        )
        return Aspect(False, "PrefillRateUnknown", text)
    return None


def _held(missing: Aspect, value: int, sizing: SizingSpec, cause: Cause | None, history: History) -> SizingDecision:
    low, high = sizing.min_replicas, sizing.max_replicas
    message = f"{_replicas(value)} (min {low}, max {high}); holding {missing.message}"
    return SizingDecision(
        value,
        missing.reason,
        message,
        active=missing.status,
        able=Aspect(True, "ReadyForNewScale", "the number may change once the load is known"),
        limited=Aspect(False, "DesiredWithinRange", "the load asks for no other number"),
        wave=cause,
        history=history,
        requeue_after=PERIOD,
    )


# --- Number that the load requires ---------------------------------------------------------------------------


def _advice(
    sizing: SizingSpec,
    group: SizingInput,
    load: GroupLoad,
    current: int,
    wave: Wave | None,
    *,
    now: datetime,
    coming: bool = False,
) -> _Advice:
    if is_quiet(load):
        low = sizing.min_replicas
        if current > low and group.releasing:
            return _Advice(
                current, "Quiet", "no request arrived; the number stands while several revisions have replicas"
            )
        return _Advice(low, "Quiet" if current > low else "WithinTarget", "no request arrived")
    ttft = durations.parse(sizing.targets.ttft).total_seconds() if sizing.targets.ttft is not None else None
    there = max(1, current)
    own = PoolMember("", load, sizing.min_replicas, sizing.max_replicas, there, ttft)
    sure = at_fastest(load)
    answerable = without_drift(transient.without_wave(sure, wave)) if wave is not None else without_drift(sure)
    rising = shared.least_replicas(replace(own, load=answerable), group.others)
    least_replicas = shared.least_replicas(replace(own, load=sure), group.others)
    falling = shared.least_replicas(own, group.others, 1 - limits.TOLERANCE)
    assert rising is not None and least_replicas is not None and falling is not None  # noqa: S101, PT018 - the load fits
    target, model = Target(ttft), least_replicas[1]
    ranged = from_requests(load)
    doubt = f"; {_doubt(ranged)}" if ranged is not None else ""
    if min(rising[0], least_replicas[0]) > there:  # a load without its dip may lack proof that a queue is harmless
        limit = limits.exceeded(rising[1], there, target) or limits.Limit.UTILISATION
        if coming and limit in limits.OF_THE_PAST:
            numbers = _numbers(model, there, there, target)
            return _Advice(there, "ReplicasStarting", f"{numbers}; these figures are those of fewer replicas")
        if wave is not None and limit in limits.OF_THE_PAST and now - wave.at < timedelta(seconds=load.seconds):
            numbers = _numbers(model, there, there, target)
            return _Advice(
                there, wave.cause.value, f"{numbers}; these figures include the time before the latest change"
            )
        return _Advice(rising[0], limit.value, _numbers(rising[1], there, rising[0], target) + doubt)
    if falling[0] < there and not group.releasing:
        return _Advice(falling[0], "DemandFell", _numbers(falling[1], there, falling[0], target) + doubt)
    numbers = _numbers(model, there, there, target) + doubt
    if least_replicas[0] > there and find_drift(load) is not None:
        return _Advice(
            there, "PromptDrift", f"{numbers}; prompts differ from the declared one, so more replicas do not help"
        )
    if least_replicas[0] > there and wave is not None:
        return _Advice(there, wave.cause.value, f"{numbers}; the hit rate is recovering from the latest change")
    if limits.is_late(model, target):
        return _Advice(
            there, "TargetOutOfReach", f"{numbers}; the prefill alone takes this long, so more replicas do not help"
        )
    return _Advice(there, "WithinTarget", numbers)


def _doubt(rate_range: RateRange) -> str:
    return (
        f"prefill rate {rate_range.slow:.0f} to {rate_range.fast:.0f} tokens/s, estimated from requests "
        "because no warm-up could measure it"
    )


def is_quiet(load: GroupLoad) -> bool:
    """Return True if no request arrived or runs, by the engines' counters and, if they were read, the routers'."""
    engines, clients = load.engines, load.clients
    idle = engines is not None and not any((engines.queries, engines.requests, engines.running, engines.waiting))
    return idle and (clients is None or not (clients.requests or clients.held))


def _replicas(n: int) -> str:
    return f"{n} replica" if n == 1 else f"{n} replicas"


def _numbers(model: Model, there: int, value: int, target: Target) -> str:
    """Return the figures of the decision, for the current number and for the required one."""

    def of(n: int) -> str:
        text = f"{_replicas(n)}: utilisation {model.utilisation(n):.0%}, hit rate {model.hit_rate(n):.0%}"
        filled = model.filled(n)
        if filled is not None:
            text += f", working set {filled:.0%} of the KV cache"
        if target.ttft is not None:
            text += f", p{QUANTILE * 100:.0f} TTFT {1000 * model.ttft(n):.0f} ms (target {1000 * target.ttft:.0f} ms)"
        return text

    return of(there) if value == there else f"{of(there)}; {of(value)}"


# --- Change that is allowed now ------------------------------------------------------------------------------


def _paced(sizing: SizingSpec, current: int, advice: _Advice, history: History, now: datetime) -> SizingDecision:
    past = history.past.recommending(advice.value, current, now)
    paced = pace(past, current, advice.value, sizing.behavior, now)
    value = min(max(paced.value, sizing.min_replicas), sizing.max_replicas)
    able, limited = _able(past, value, sizing, now), _limited(past, paced, value, sizing, now)
    reason, message = advice.reason, advice.why
    if advice.value != value:
        message = f"the load asks for {advice.value} ({advice.reason}): {advice.why}"
    if value == current or value != paced.value:
        reason = _held_back(advice, able, limited)
    return SizingDecision(
        value,
        reason,
        message if value == current else f"from {current} to {_replicas(value)}: {message}",
        active=True,
        able=able,
        limited=limited,
        history=replace(history, past=past.changing(value - current, now)),
        requested=advice.value,
        requeue_after=min(PERIOD, paced.requeue_after) if paced.requeue_after is not None else PERIOD,
    )


def _held_back(advice: _Advice, able: Aspect, limited: Aspect) -> str:
    """Return the reason of a number that differs from the required one, or that does not change."""
    if limited.status:
        return limited.reason
    return "Stabilizing" if able.reason != "ReadyForNewScale" and advice.reason in _CALM else advice.reason


_CALM = frozenset({"WithinTarget", "DemandFell", "Quiet", *limits.Limit})
"""Reasons that are replaced by `Stabilizing` while a stabilization window holds the number."""


def _able(past: Past, value: int, sizing: SizingSpec, now: datetime) -> Aspect:
    """Return AbleToScale: the window that holds the number. It is reported during the whole window."""
    up, down = (
        timedelta(seconds=rules.stabilization_window_seconds)
        for rules in (sizing.behavior.scale_up, sizing.behavior.scale_down)
    )
    if max(past.range(down, now)[0], sizing.min_replicas) < value:
        return Aspect(
            True, "ScaleDownStabilized", "fewer replicas were recommended, but not for the whole stabilization window"
        )
    if min(past.range(up, now)[1], sizing.max_replicas) > value:
        return Aspect(
            True, "ScaleUpStabilized", "more replicas were recommended, but not for the whole stabilization window"
        )
    return Aspect(True, "ReadyForNewScale", "no stabilization window holds the number back")


def _limited(past: Past, paced: Paced, value: int, sizing: SizingSpec, now: datetime) -> Aspect:
    """Return ScalingLimited: the bound or policy that limits the number, reported during the scale-down window."""
    least, most = past.range(timedelta(seconds=sizing.behavior.scale_down.stabilization_window_seconds), now)
    if most > sizing.max_replicas == value:
        text = f"the load asks for more than sizing.maxReplicas, {sizing.max_replicas}"
        return Aspect(True, "TooManyReplicas", text)
    if least < sizing.min_replicas == value:
        text = f"the load asks for fewer than sizing.minReplicas, {sizing.min_replicas}"
        return Aspect(True, "TooFewReplicas", text)
    if paced.limited:
        way = "ScaleUpLimit" if past.recommended[-1].value > value else "ScaleDownLimit"
        return Aspect(True, way, "sizing.behavior allows no larger change at once")
    return Aspect(False, "DesiredWithinRange", "the number that the load asks for is within the bounds")
