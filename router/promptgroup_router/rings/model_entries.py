"""Builds the entry of a model or an alias: its declared prefixes, and the replicas for all other requests.

Parts of the previous entry that are unchanged are reused.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence

from promptgroup_contract.access import Access
from promptgroup_contract.caller_rules import CallerRules
from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_contract.table import LOAD_FACTOR_PERCENT, Policy, Sharing
from promptgroup_router.base.steps import sorted_steps
from promptgroup_router.rings.age import by_age
from promptgroup_router.rings.aliases import Aliases
from promptgroup_router.rings.claims import Claim, Claims
from promptgroup_router.rings.index import (
    Candidates,
    ClaimConflict,
    GroupEntry,
    Member,
    ModelEntry,
    RevisionEntry,
    RoutingIndex,
    TenantEntry,
    entry_age,
    strictest,
)
from promptgroup_router.rings.names import NameKeepers
from promptgroup_router.rings.ring import NO_SLOTS

_Claimed = dict[tuple[str, Fingerprint], Claim[RevisionEntry]]
"""Namespace and fingerprint → claim."""


def model_steps(
    model: str,
    groups: Sequence[GroupEntry],
    keepers: NameKeepers,
    conflicts: list[ClaimConflict],
    last: ModelEntry | None,
) -> Generator[None, None, ModelEntry]:
    """Return the entry of a model, built in steps of a group.

    Args:
        model: its name.
        groups: the groups that serve it, the oldest first.
        keepers: the groups that own names.
        conflicts: list to which the prefixes are added that a group declares and an older one has claimed.
        last: the model in the index before.
    """
    nothing: Claims[RevisionEntry] = Claims(())
    before = last.everybodys if last is not None else nothing
    claims = yield from _claim_steps(groups, conflicts, before)
    everybodys = yield from before.renewed(claims)
    by_namespace: dict[str, list[GroupEntry]] = {}
    for group in groups:
        by_namespace.setdefault(group.group.namespace, []).append(group)
    alone = len(by_namespace) == 1
    own: dict[str, _Claimed] = {}
    if not alone:
        for key, claim in claims.items():
            own.setdefault(claim.namespace, {})[key] = claim
            yield
    tenants: dict[str, TenantEntry] = {}
    for namespace, theirs in by_namespace.items():
        had = last.tenants.get(namespace) if last is not None else None
        if alone:
            mine = everybodys
        else:
            mine = yield from (had.claims if had is not None else nothing).renewed(own.get(namespace, {}))
        pools = yield from _pool_steps(f"-/{model}" if alone else f"-/{namespace}/{model}", theirs, had)
        same = had is not None and had.claims is mine and had.by_access == pools
        tenants[namespace] = had if had is not None and same else TenantEntry(namespace, model, mine, pools)
    keeper, named = keepers.first(model), keepers.named(model)
    first = tenants.get(keeper.namespace) if keeper is not None else None
    if first is None:
        return ModelEntry(tenants, nothing, None, everybodys)
    if named is None:
        return ModelEntry(tenants, everybodys, first, everybodys)
    owned: _Claimed = {}
    limit = by_age(named)
    for key, claim in claims.items():
        if claim.namespace == first.namespace or claim.age < limit:
            owned[key] = claim
        yield
    if len(owned) == len(claims):
        return ModelEntry(tenants, everybodys, first, everybodys)
    some = yield from (last.claims if last is not None else nothing).renewed(owned)
    return ModelEntry(tenants, some, first, everybodys)


def alias_steps(
    name: str,
    aliases: Aliases,
    models: Mapping[str, ModelEntry],
    by_model: Mapping[str, Sequence[GroupEntry]],
    before: RoutingIndex | None,
) -> Generator[None, None, ModelEntry]:
    """Return the entry of an alias, which includes the model of that name in other namespaces if there is one.

    Its parts are those of the models themselves: sessions, limits and cached answers are the same under each name.
    """
    yield
    nothing: Claims[RevisionEntry] = Claims(())
    real, meanings = models.get(name), aliases.meanings[name]
    tenants = dict(real.tenants) if real is not None else {}
    tenants |= {namespace: models[item.model].tenants[namespace] for namespace, item in meanings.items()}
    namespace = aliases.first.get(name)
    if namespace is None:
        claims, first = (real.claims, real.first) if real is not None else (nothing, None)
        return ModelEntry(tenants, claims, first, nothing)
    first = tenants[namespace]
    if real is None:
        return ModelEntry(tenants, first.claims, first, nothing)
    # the alias is older than each group of the model of this name, so no age is greater than that of the name
    theirs = [item for item in by_model[first.model] if item.group.namespace == namespace]
    oldest_first = yield from sorted_steps([*by_model[name], *theirs], entry_age)
    last = before.models.get(name) if before is not None else None
    claimed_before = last.claims if last is not None else nothing
    claimed = yield from _claim_steps(oldest_first, [], claimed_before)
    claims = yield from claimed_before.renewed(claimed)
    return ModelEntry(tenants, claims, first, nothing)


def _claim_steps(
    groups: Iterable[GroupEntry], conflicts: list[ClaimConflict], last: Claims[RevisionEntry]
) -> Generator[None, None, _Claimed]:
    """Return the declared prefixes of groups, which are given in the order in which they claim prefixes."""
    claims: _Claimed = {}
    for group in groups:
        for revision in group.revisions:
            key = revision.group.namespace, revision.revision.declared
            if key in claims:
                # revisions of one group have one prompt, where they differ in their adapter
                if claims[key].entry.label != group.label:
                    conflicts.append(ClaimConflict(group.label, claims[key].entry.label, key[1]))
            elif revision.revision.system_bytes or revision.revision.tools or revision.revision.messages:
                before = last.declared.get(key)
                claims[key] = before if before is not None and before.entry is revision else _claim(revision)
        yield
    return claims


def _claim(entry: RevisionEntry) -> Claim[RevisionEntry]:
    prompt = entry.preamble
    return Claim(
        entry=entry,
        namespace=entry.group.namespace,
        fingerprint=entry.revision.declared,
        system_bytes=entry.revision.system_bytes,
        system=prompt.system if prompt is not None else None,
        tools=prompt.canonical_tools if prompt is not None else "",
        messages=entry.revision.messages,
        age=entry_age(entry),
    )


_Pools = tuple[tuple[Access | None, Candidates], ...]


def _pool_steps(label: str, groups: Sequence[GroupEntry], had: TenantEntry | None) -> Generator[None, None, _Pools]:
    """Return, for each access, the replicas for requests that match no declared prefix; unchanged ones are reused.

    An access whose groups all keep their replicas to themselves comes last: it offers none, and a caller whom another
    access admits as well is to be served.

    Args:
        label: label of the first pool.
        groups: the groups of the model in a namespace, the oldest first.
        had: the previous entry, with their pools.
    """
    by_access: dict[Access | None, list[GroupEntry]] = {}
    admitting: list[GroupEntry] = []
    sharing: set[Access | None] = set()
    last: Access | None = None
    for group in groups:
        access = group.group.access
        if access is not last or not by_access:
            last, admitting = access, by_access.setdefault(access, [])
        admitting.append(group)
        if group.group.sharing is Sharing.POOL:
            sharing.add(access)
        yield
    candidateses = {candidates.id: candidates for _, candidates in had.by_access} if had is not None else {}
    pools: list[tuple[Access | None, Candidates]] = []
    for number, (access, theirs) in enumerate(sorted(by_access.items(), key=lambda item: item[0] not in sharing)):
        name = f"{label}#{number}" if number else label
        candidates = yield from _model_candidates(name, theirs, access, candidateses.get(name))
        pools.append((access, candidates))
    return tuple(pools)


def _model_candidates(
    label: str, groups: Sequence[GroupEntry], access: Access | None, candidates: Candidates | None
) -> Generator[None, None, Candidates]:
    # by the name under which engines serve an adapter: of its revisions, only those with the same weights answer alike
    lending: dict[str, list[Member]] = {}
    # without lending replicas, the others serve such requests, too
    others: dict[str, list[Member]] = {}
    draining: dict[str, list[Member]] = {}
    rules: list[CallerRules] = []
    owner: CallerRules | None = None
    sleepers: list[GroupEntry] = []
    resumes: list[int] = []
    unranked: frozenset[str] = frozenset()
    apis: dict[str, frozenset[str] | None] = {}
    for group in groups:
        callers = group.group.callers
        if not rules or callers is not rules[-1]:
            rules.append(callers)
        if group.group.sharing is Sharing.POOL:
            owner = owner if owner is not None else callers
            resumes.append(group.group.max_resumes)
            if group.group.sleep is not None:
                sleepers.append(group)
            for revision in group.revisions:
                own, served = revision.candidates, revision.revision.served_model
                (lending if revision.revision.lends else others).setdefault(served, []).extend(own.ready)
                draining.setdefault(served, []).extend(own.draining)
                apis[served] = own.served_apis
                unranked |= own.unranked
        yield
    by_name = (*lending.items(), *others.items())
    served = next((name for name, members in by_name if members), by_name[0][0] if by_name else "")
    # of several, the oldest group that requests can wake
    asleep = next((item for item in sleepers if item.group.sleep and item.group.sleep.wake_timeout), None)
    asleep = asleep or next(iter(sleepers), None)
    made = Candidates(
        id=label,
        policy=Policy.EXPECTED_TTFT,
        load_factor_percent=LOAD_FACTOR_PERCENT,
        ring=NO_SLOTS,
        ready=tuple(lending.get(served) or others.get(served) or ()),
        served_model=served,
        served_apis=apis.get(served),
        unranked=unranked,
        max_resumes=min(resumes, default=0),
        draining=tuple(draining.get(served, ())),
        rules=_unmatched_rules(rules, owner if owner is not None else rules[0]),
        access=access,
        sleep=asleep.group.sleep if asleep is not None else None,
        sleeper=asleep.label if asleep is not None else "",
    )
    return candidates if candidates == made else made


def _unmatched_rules(groups: Sequence[CallerRules], owner: CallerRules) -> CallerRules:
    """Return the rules for requests that match no declared prompt, from those of the groups whose engines serve them.

    If one group isolates its callers, or hides cached tokens from them, the strict rule applies: the same engines cache
    their other prompts. If the engines accept a salt on different APIs, such requests are served only on the APIs that
    all of them have in common. No engine field and no further header is passed on: no group is responsible for their
    clients.

    Args:
        groups: the rules of all groups whose engines serve such requests.
        owner: the rules whose limits apply: those of the oldest group that shares its replicas.
    """
    isolating = [group.salted for group in groups if group.salted is not None]
    return CallerRules(
        salted=frozenset.intersection(*isolating) if isolating else None,
        cached_tokens=strictest(groups),
        default=owner.default,
        named=owner.named,
    )
