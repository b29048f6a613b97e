"""The PromptRoute: the replicas to which routers may send requests, and the rules for it."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from math import ceil
from operator import itemgetter
from typing import Any, NamedTuple

from promptgroup_contract import engine_tls, table
from promptgroup_contract.caller_rules import CallerRules, Isolation
from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_contract.messages import read_messages
from promptgroup_contract.wire import UnfitError, codec_of
from promptgroup_operator.adapters import identity
from promptgroup_operator.api.access import to_contract
from promptgroup_operator.api.limits import LimitsSpec, caller_limits
from promptgroup_operator.api.prompt_group import PromptGroupSpec
from promptgroup_operator.api.responses import caching_of
from promptgroup_operator.base import durations
from promptgroup_operator.base.timestamps import rfc3339
from promptgroup_operator.engines import tiers
from promptgroup_operator.engines.dialects.dialect import requested_model
from promptgroup_operator.engines.dialects.ranks import unranked
from promptgroup_operator.engines.dialects.registry import DIALECTS
from promptgroup_operator.plan import desired
from promptgroup_operator.rollout.release import RevisionPhase, RevisionStep
from promptgroup_operator.world import engine_facts
from promptgroup_operator.world.load import TierReach
from promptgroup_operator.world.snapshot import GroupObject, Manifest, Pod, RevisionState

BALANCING = frozenset({table.Policy.LEAST_REQUEST, table.Policy.ROUND_ROBIN})
"""Policies that do not use a session's home slot."""

SLEEP = codec_of(table.Sleep)
_STATES = {state.value: state for state in table.SlotState}


def route(
    group: GroupObject,
    revisions: Sequence[RevisionState],
    plan: Mapping[Fingerprint, RevisionStep],
    held: Mapping[Fingerprint, Mapping[str, int]],
    live: Mapping[tuple[str, str], Manifest],
    *,
    now: datetime,
    sleep: table.Sleep | None = None,
) -> table.Group:
    """Return the group as it is published to routers.

    Args:
        group: the PromptGroup.
        revisions: the revisions that have a Deployment.
        plan: fingerprint → step.
        held: fingerprint → pod name → slot.
        live: current objects. From the PromptRoute come a prompt's sizes when the prompt's object does not exist, its
            length in tokens while no replica is warm, and the time since which the group has an alias.
        now: the time.
        sleep: treatment of requests while there is no replica by design; None for a group that always has one.
    """
    routing = group.spec.routing
    standing = live.get(("PromptRoute", group.key.name))
    last = {item.get("fingerprint"): item for item in _revisions(standing)}
    routed = []
    for revision in revisions:
        if plan[revision.fingerprint].phase is RevisionPhase.RETIRED:
            continue
        before = last.get(revision.fingerprint)
        size = _size(revision, before)
        if size is None:
            continue
        adapted = _adapted(group.spec, revision, before)
        warm = [pod for pod in revision.pods if pod.is_warm]
        numbers = engine_facts.together(pod.measured for pod in warm)
        deployment = live.get((revision.workload, revision.deployment))
        kinds = {pod.settings for pod in warm} or {desired.settings_of(deployment)}
        settings = kinds.pop() if len(kinds) == 1 else ""
        # During a change of the engine some replicas may not have the tier.
        copies = settings != "" and tiers.reach(group.spec) is TierReach.SHARED
        routed.append(
            table.Revision(
                fingerprint=revision.fingerprint,
                system_bytes=size.system_bytes,
                tools=size.tools,
                messages=size.messages,
                weight=plan[revision.fingerprint].weight,
                slots=ring(
                    revision.pods, held[revision.fingerprint], plan[revision.fingerprint], _ranks(deployment, revision)
                ),
                tokens=numbers.prefix_tokens or (before or {}).get("tokens", 0),
                text_fingerprint=adapted.text_fingerprint,
                served_model=adapted.served_model,
                served_apis=adapted.served_apis,
                engine=table.Engine(
                    # During a change of the engine nothing is lent: some replicas still run the other engine.
                    settings=settings,
                    kv_tokens=numbers.kv_tokens,
                    prefill_rate=numbers.prefill_rate,
                    step_tokens=desired.step_tokens(group, deployment),
                    max_sequences=desired.max_sequences(group, deployment),
                    copy_rate=numbers.copy_rate if copies else 0,
                    unranked=unranked(DIALECTS[group.spec.engine.type], group.spec.engine.image)
                    if any(pod.ranks > 1 for pod in warm)
                    else frozenset(),
                ),
                prompt_from=revision.prompt_from,
                lends=plan[revision.fingerprint].phase is RevisionPhase.SERVING,
            )
        )
    return table.Group(
        namespace=group.key.namespace,
        name=group.key.name,
        model=group.spec.adapter.name if group.spec.adapter is not None else group.spec.model,
        base_model=group.spec.model if group.spec.adapter is not None else "",
        created=group.created,
        policy=_policy(group.spec),
        sharing=routing.sharing,
        load_factor_percent=routing.load_factor_percent,
        session_header=routing.session_header.lower(),
        # Nothing can be replaced where no prompt is declared.
        own_instructions=routing.own_instructions if group.spec.has_prompt else table.OwnInstructions.APPEND,
        access=to_contract(group.spec.access),
        time_limits=table.TimeLimits(
            _seconds(routing.first_token_timeout),
            _seconds(routing.idle_timeout),
            _seconds(routing.keep_alive_interval),
        ),
        callers=caller_rules(group.spec),
        responses=caching_of(group.spec.responses),
        revisions=tuple(routed),
        max_resumes=routing.resume.max if DIALECTS[group.spec.engine.type].resumes else 0,
        aliases=_aliases(group.spec, standing, now),
        sleep=sleep,
    )


def _ranks(deployment: Manifest | None, revision: RevisionState) -> int:
    """Return the data-parallel ranks of future pods; for a guest, those of its host's replicas."""
    if deployment is not None:
        return desired.deployment_ranks(deployment)
    return max((pod.ranks for pod in revision.pods), default=1)


def _aliases(spec: PromptGroupSpec, standing: Manifest | None, now: datetime) -> tuple[table.ModelAlias, ...]:
    """Return the aliases of the model. An alias that is not in the route yet begins now, whatever the group's age."""
    listed = standing.get("spec", {}).get("aliases", []) if standing is not None else []
    since = {item.get("name"): item.get("since") for item in listed}
    return tuple(table.ModelAlias(name, since.get(name) or rfc3339(now)) for name in spec.model_aliases)


def _policy(spec: PromptGroupSpec) -> table.Policy:
    """Return the policy: without caches, session affinity has no benefit, so the least-request policy is used."""
    if not spec.caches_nothing or spec.routing.policy in BALANCING:
        return spec.routing.policy
    return table.Policy.LEAST_REQUEST


def caller_rules(spec: PromptGroupSpec) -> CallerRules:
    """Return a group's rules for its callers, in the form for routers."""
    routing, limits = spec.routing, spec.limits or LimitsSpec()
    isolates = routing.isolation is Isolation.CALLER
    return CallerRules(
        allowed=frozenset(routing.allowed_engine_fields),
        headers=frozenset(routing.allowed_engine_headers),
        salted=DIALECTS[spec.engine.type].salted if isolates else None,
        cached_tokens=routing.report_cached_tokens,
        default=caller_limits(limits.default),
        named=tuple(
            sorted({caller.caller: caller_limits(caller) for caller in limits.callers}.items(), key=itemgetter(0))
        ),
    )


def _seconds(timeout: str | None) -> int:
    """Return the whole seconds of a time limit, at least one, since routers check once a second; 0 for none."""
    return max(1, ceil(durations.parse(timeout).total_seconds())) if timeout is not None else 0


class _Size(NamedTuple):
    system_bytes: int
    tools: bool
    messages: int


def _size(revision: RevisionState, last: Mapping[str, Any] | None) -> _Size | None:
    """Return the sizes of the prompt's parts for the route; None when unknown."""
    if (prompt := revision.prompt) is not None:
        return _Size(len(prompt.system.encode()), prompt.tools != "", len(read_messages(prompt.messages)))
    if last is not None:
        return _Size(last.get("systemBytes", 0), last.get("tools", False), last.get("messages", 0))
    return None


class _Adapted(NamedTuple):
    text_fingerprint: Fingerprint
    served_model: str
    served_apis: frozenset[str] | None


def _adapted(spec: PromptGroupSpec, revision: RevisionState, last: Mapping[str, Any] | None) -> _Adapted:
    """Return what routers get of a revision's adapter; from the current route while its prompt cannot be read."""
    speech = DIALECTS[spec.engine.type]
    apis = speech.adapters.apis if speech.adapters is not None else None
    if revision.prompt is None:
        route = last or {}
        served = route.get("servedModel", "")
        return _Adapted(Fingerprint(route.get("textFingerprint", "")), served, apis if served else None)
    adapter = identity.decode(revision.prompt.adapter)
    if adapter is None:
        return _Adapted(table.NO_FINGERPRINT, "", None)
    return _Adapted(revision.prompt.text_fingerprint, requested_model(speech, spec.model, adapter), apis)


def served_adapters(route: Manifest | None) -> frozenset[str]:
    """Return the models that requests to engines name for the adapters of a current PromptRoute's revisions."""
    return frozenset(item["servedModel"] for item in _revisions(route) if item.get("servedModel"))


def _revisions(route: Manifest | None) -> list[Mapping[str, Any]]:
    revisions: list[Mapping[str, Any]] = route.get("spec", {}).get("revisions", []) if route is not None else []
    return revisions


def ring(pods: Sequence[Pod], held: Mapping[str, int], step: RevisionStep, ranks: int = 1) -> tuple[table.Slot, ...]:
    """Return every slot of a revision: those of its ring, and others whose pods still drain.

    A slot without a pod has the data-parallel ranks of its future pod.
    """
    holders = {held[pod.name]: pod for pod in pods if pod.name in held}
    return tuple(
        _slot(index, holders.get(index), drains=index not in step.ring, ranks=ranks)
        for index in sorted({*step.ring, *holders})
    )


def standing(route: Manifest | None) -> dict[Fingerprint, tuple[int, dict[int, table.SlotState]]]:
    """Return fingerprint → (weight, slot → its state), from a current PromptRoute."""
    return {
        Fingerprint(revision.get("fingerprint", "")): (
            revision.get("weight", 0),
            {
                slot["slot"]: _STATES[slot["state"]]
                for slot in revision.get("slots", [])
                if slot.get("state") in _STATES
            },
        )
        for revision in _revisions(route)
    }


def sleep_of(route: Manifest | None) -> table.Sleep | None:
    """Return the sleep of a group from its current PromptRoute; None where it has none that can be parsed."""
    sleep = route.get("spec", {}).get("sleep") if route is not None else None
    try:
        return SLEEP.read(sleep) if sleep is not None else None
    except UnfitError:
        return None


def states(route: Manifest | None) -> dict[str, table.SlotState]:
    """Return pod → state of its slot, from a current PromptRoute."""
    return {pod: _STATES[state] for pod, state in _pods(route) if state in _STATES}


def ready(route: table.Group) -> dict[Fingerprint, int]:
    """Return fingerprint → number of slots that routers may send to."""
    return {
        revision.fingerprint: sum(slot.state is table.SlotState.READY for slot in revision.slots)
        for revision in route.revisions
    }


def sends_to(route: Manifest | None) -> frozenset[str]:
    """Return the pods to which routers may send requests, by a current PromptRoute."""
    return frozenset(pod for pod, state in _pods(route) if state == table.SlotState.READY)


def leads_to(route: Manifest | None) -> frozenset[str]:
    """Return all pods that a current PromptRoute names, including draining ones."""
    return frozenset(pod for pod, _ in _pods(route))


def _pods(route: Manifest | None) -> Iterator[tuple[str, str]]:
    """Yield each pod that a PromptRoute names, with the state of its slot."""
    for revision in _revisions(route):
        for slot in revision.get("slots", []):
            if slot.get("pod"):
                yield slot["pod"], slot.get("state", "")


def _slot(index: int, pod: Pod | None, *, drains: bool, ranks: int) -> table.Slot:
    absent = table.Slot(index, table.SlotState.ABSENT, ranks=pod.ranks if pod is not None else ranks)
    if pod is None or not pod.is_warm or pod.settling:
        return absent
    tls = engine_tls.parse(pod.tls)
    if pod.tls and tls is None:  # the annotation was changed by hand: no verification is defined
        return absent
    return table.Slot(
        index,
        table.SlotState.DRAINING if drains else table.SlotState.READY,
        address=pod.address,
        pod=pod.name,
        incarnation=pod.container_id.rpartition("/")[2][:12],
        credential=pod.credential,
        tls=tls,
        ranks=pod.ranks,
    )
