"""Encodes the routing table as JSON: PromptRoutes, table files and the copy that a router keeps on disk.

Decoding ignores unknown fields and has a default for every field that was added later, so that routers and operators of
different versions read each other. It refuses an unknown `format`; the caller then keeps the last good table. Unknown
values (a zero, an empty text) are not written.
"""

from collections.abc import Generator, Iterable, Mapping
from ipaddress import ip_network
from typing import Any

from promptgroup_router.contract import caller_encoding, engine_tls
from promptgroup_router.contract.access import Access, AccessType
from promptgroup_router.contract.fields import count, items, mapping, member, ratio, text, texts
from promptgroup_router.contract.fingerprint import Fingerprint
from promptgroup_router.contract.messages import read_messages
from promptgroup_router.contract.names import HEADER_SESSION
from promptgroup_router.contract.semantic import SemanticCaching
from promptgroup_router.contract.table import (
    LOAD_FACTOR_PERCENT,
    MESSAGES_KEY,
    MOST_SLOT,
    SYSTEM_KEY,
    TOOLS_KEY,
    CacheScope,
    Engine,
    Group,
    ModelAlias,
    OwnInstructions,
    Policy,
    Prompt,
    PromptRef,
    ResponseCaching,
    Revision,
    RoutingTable,
    Sharing,
    Slot,
    SlotState,
    TableError,
    TimeLimits,
)

FORMAT = 1
"""Version of the encoding. Additions keep it; a change of meaning raises it."""
GUARDED_FORMAT = 2
"""That of a group which isolates its callers, or whose engines serve TLS: a router that cannot do that must not serve
it."""


# --- Encoding ----------------------------------------------------------------------------------------------


def encode_group(group: Group) -> dict[str, Any]:
    """Return the `spec` of the group's PromptRoute, without prompt text."""
    limits = {
        "firstTokenSeconds": group.time_limits.first_token,
        "idleSeconds": group.time_limits.idle,
        "keepAliveSeconds": group.time_limits.keep_alive,
    }
    encoded: dict[str, Any] = {
        "format": GUARDED_FORMAT if group.callers.isolates or _serves_tls(group) else FORMAT,
        "model": group.model,
        "created": group.created,
        "policy": group.policy.value,
        "sharing": group.sharing.value,
        "loadFactorPercent": group.load_factor_percent,
        "sessionHeader": group.session_header,
        **{key: value for key, value in limits.items() if value},
        "revisions": [_encode_revision(revision) for revision in group.revisions],
    }
    if group.own_instructions is not OwnInstructions.REFUSE:
        encoded["ownInstructions"] = group.own_instructions.value
    if group.access is not None:
        encoded["access"] = encode_access(group.access)
    if callers := caller_encoding.encode(group.callers):
        encoded["callers"] = callers
    if group.responses is not None:
        encoded["responses"] = _encode_responses(group.responses)
    if group.aliases:
        encoded["aliases"] = [_encode_alias(alias) for alias in group.aliases]
    return encoded


def _encode_alias(alias: ModelAlias) -> dict[str, str]:
    return {"name": alias.name} | ({"since": alias.since} if alias.since else {})


def _serves_tls(group: Group) -> bool:
    return any(slot.tls is not None for revision in group.revisions for slot in revision.slots)


def encode_access(access: Access) -> dict[str, Any]:
    """Return the `access` of a PromptRoute, which is also the content of the router's file of its default."""
    optional: dict[str, Any] = {
        "callers": list(access.callers),
        "secrets": list(access.secrets),
        "header": access.header,
        "sources": list(access.sources),
        "issuer": access.issuer,
        "audiences": list(access.audiences),
        "algorithms": list(access.algorithms),
        "jwksURI": access.jwks_uri,
        "nameClaim": access.name_claim,
        "passCredentials": access.passes_credentials,
    }
    return {"type": access.type.value} | {key: value for key, value in optional.items() if value}


def encode_table(table: RoutingTable) -> dict[str, Any]:
    """Return a table file with the prompt text inline. Guard it as you would guard the prompts."""
    groups = []
    for group in table.groups:
        spec = encode_group(group)
        for encoded, revision in zip(spec["revisions"], group.revisions, strict=True):
            if revision.prompt is not None:
                prompt = revision.prompt
                encoded["prompt"] = {SYSTEM_KEY: prompt.system, TOOLS_KEY: prompt.tools}
                if prompt.messages:
                    encoded["prompt"][MESSAGES_KEY] = prompt.messages
        groups.append({"namespace": group.namespace, "name": group.name, **spec})
    return {"format": FORMAT, "version": table.version, "groups": groups}


def _encode_responses(caching: ResponseCaching) -> dict[str, Any]:
    encoded: dict[str, Any] = {"ttlSeconds": caching.ttl, "maxBytes": caching.max_bytes, "scope": caching.scope.value}
    encoded |= {"trustSeed": True} if caching.trust_seed else {}
    encoded |= {"staleSeconds": caching.stale} if caching.stale else {}
    return encoded | ({"semantic": _encode_semantic(caching.semantic)} if caching.semantic is not None else {})


def _encode_semantic(semantic: SemanticCaching) -> dict[str, Any]:
    encoded = {
        "threshold": semantic.threshold,
        "url": semantic.url,
        "model": semantic.model,
        "maxEntries": semantic.max_entries,
    }
    return encoded | ({"credential": semantic.credential} if semantic.credential else {})


def _encode_revision(revision: Revision) -> dict[str, Any]:
    encoded: dict[str, Any] = {
        "fingerprint": revision.fingerprint,
        "systemBytes": revision.system_bytes,
        "tools": revision.tools,
        "weight": revision.weight,
        "slots": [_encode_slot(slot) for slot in revision.slots],
    }
    if revision.messages:
        encoded["messages"] = revision.messages
    if revision.tokens:
        encoded["tokens"] = revision.tokens
    if engine := _encode_engine(revision.engine):
        encoded["engine"] = engine
    if not revision.lends:
        encoded["lends"] = False
    if revision.prompt_from is not None:
        encoded["promptFrom"] = {"kind": revision.prompt_from.kind, "name": revision.prompt_from.name}
    return encoded


def _encode_engine(engine: Engine) -> dict[str, Any]:
    optional = {
        "settings": engine.settings,
        "kvTokens": engine.kv_tokens,
        "prefillTokensPerSecond": engine.prefill_rate,
        "stepTokens": engine.step_tokens,
        "copyTokensPerSecond": engine.copy_rate,
    }
    return {key: value for key, value in optional.items() if value}


def _encode_slot(slot: Slot) -> dict[str, Any]:
    optional = {
        "address": slot.address,
        "pod": slot.pod,
        "incarnation": slot.incarnation,
        "credential": slot.credential,
        "tls": slot.tls.text() if slot.tls is not None else "",
    }
    return {"slot": slot.index, "state": slot.state.value} | {key: value for key, value in optional.items() if value}


# --- Decoding ----------------------------------------------------------------------------------------------


def decode_table(data: object) -> RoutingTable:
    """Return the table of a parsed table file.

    Raises:
        TableError: the value is no table, has an unknown format, or has a field that cannot be used.
    """
    table = mapping(data, "table")
    _check_format(table, "table")
    groups = []
    for i, item in enumerate(items(table, "groups", "table")):
        entry = mapping(item, f"groups[{i}]")
        namespace, name = text(entry, "namespace", f"groups[{i}]"), text(entry, "name", f"groups[{i}]")
        groups.append(decode_group(namespace, name, entry))
    _check_unique((f"{group.namespace}/{group.name}" for group in groups), "groups")
    return RoutingTable(tuple(groups), text(table, "version", "table", ""))


def decode_group(namespace: str, name: str, spec: object) -> Group:
    """Return the group of a PromptRoute's `spec`, or of an entry of a table file, at once: see `decode_steps`."""
    steps = decode_steps(namespace, name, spec)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            group: Group = end.value
            return group


def decode_steps(namespace: str, name: str, spec: object) -> Generator[None, None, Group]:
    """Return the group of a PromptRoute's `spec`, decoded in steps of a slot: it may have thousands.

    Raises:
        TableError: the format is unknown, or a field cannot be used.
    """
    at = f"{namespace}/{name}"
    data = mapping(spec, at)
    _check_format(data, at)
    factor = count(data, "loadFactorPercent", at, LOAD_FACTOR_PERCENT)
    if not 100 <= factor <= 10_000:
        raise TableError(f"{at}: loadFactorPercent is {factor}, expected 100 to 10000")
    revisions = []
    for i, item in enumerate(items(data, "revisions", at)):
        revisions.append((yield from _revision_steps(item, f"{at}: revisions[{i}]")))
    _check_unique((revision.fingerprint for revision in revisions), f"{at}: revisions")
    return Group(
        namespace=namespace,
        name=name,
        model=text(data, "model", at),
        created=text(data, "created", at, ""),
        revisions=tuple(revisions),
        policy=member(Policy, data, "policy", at, Policy.EXPECTED_TTFT),
        sharing=member(Sharing, data, "sharing", at, Sharing.POOL),
        load_factor_percent=factor,
        session_header=text(data, "sessionHeader", at, HEADER_SESSION).lower(),
        own_instructions=member(OwnInstructions, data, "ownInstructions", at, OwnInstructions.REFUSE),
        time_limits=TimeLimits(
            count(data, "firstTokenSeconds", at, 0),
            count(data, "idleSeconds", at, 0),
            count(data, "keepAliveSeconds", at, 0),
        ),
        access=decode_access(data["access"], f"{at}: access") if data.get("access") is not None else None,
        callers=caller_encoding.decode(data.get("callers"), f"{at}: callers"),
        responses=_decode_responses(data.get("responses"), f"{at}: responses"),
        aliases=_decode_aliases(items(data, "aliases", at), f"{at}: aliases"),
    )


def _decode_aliases(listed: list[object], at: str) -> tuple[ModelAlias, ...]:
    entries = [mapping(item, f"{at}[{i}]") for i, item in enumerate(listed)]
    aliases = tuple(
        ModelAlias(text(entry, "name", f"{at}[{i}]"), text(entry, "since", f"{at}[{i}]", ""))
        for i, entry in enumerate(entries)
    )
    _check_unique((alias.name for alias in aliases), at)
    return aliases


def _decode_responses(item: object, at: str) -> ResponseCaching | None:
    if item is None:
        return None
    data = mapping(item, at)
    return ResponseCaching(
        ttl=count(data, "ttlSeconds", at),
        max_bytes=count(data, "maxBytes", at),
        scope=member(CacheScope, data, "scope", at, CacheScope.GROUP),
        trust_seed=data.get("trustSeed", False) is True,
        stale=count(data, "staleSeconds", at) if "staleSeconds" in data else 0,
        semantic=_decode_semantic(data["semantic"], f"{at}: semantic") if data.get("semantic") is not None else None,
    )


def _decode_semantic(item: object, at: str) -> SemanticCaching:
    data = mapping(item, at)
    return SemanticCaching(
        threshold=ratio(data, "threshold", at),
        url=text(data, "url", at),
        model=text(data, "model", at),
        max_entries=count(data, "maxEntries", at),
        credential=text(data, "credential", at, ""),
    )


def decode_access(item: object, at: str) -> Access:
    """Return an access.

    An unknown type is an error, and so is a field that the type needs and does not have: who may use a group is never
    guessed.

    Args:
        item: the parsed JSON.
        at: where it stands, for messages.

    Raises:
        TableError: a field cannot be used.
    """
    data = mapping(item, at)
    access = Access(
        type=member(AccessType, data, "type", at, None),
        callers=texts(data, "callers", at),
        secrets=texts(data, "secrets", at),
        header=text(data, "header", at, "").lower(),
        sources=texts(data, "sources", at),
        issuer=text(data, "issuer", at, ""),
        audiences=texts(data, "audiences", at),
        algorithms=texts(data, "algorithms", at),
        jwks_uri=text(data, "jwksURI", at, ""),
        name_claim=text(data, "nameClaim", at, ""),
        passes_credentials=data.get("passCredentials", False) is True,
    )
    needed: dict[AccessType, dict[str, object]] = {
        AccessType.ANONYMOUS: {},
        AccessType.API_KEY: {"secrets": access.secrets},
        AccessType.HEADER: {"header": access.header, "sources": access.sources},
        AccessType.JWT: {
            "issuer": access.issuer,
            "audiences": access.audiences,
            "algorithms": access.algorithms,
            "jwksURI": access.jwks_uri,
            "nameClaim": access.name_claim,
        },
    }
    for key, value in needed[access.type].items():
        if not value:
            raise TableError(f"{at}: {key} is missing, which type {access.type.value} needs")
    for source in access.sources:
        try:
            ip_network(source)
        except ValueError as error:
            raise TableError(f"{at}: sources has {source!r}, expected a network such as 10.0.0.0/8: {error}") from None
    return access


def _revision_steps(item: object, at: str) -> Generator[None, None, Revision]:
    data = mapping(item, at)
    slots = []
    for i, slot in enumerate(items(data, "slots", at)):
        slots.append(_decode_slot(slot, f"{at}.slots[{i}]"))
        yield
    _check_unique((slot.index for slot in slots), f"{at}.slots")
    prompt = data.get("prompt")
    if prompt is not None:
        prompt = _decode_prompt(prompt, f"{at}.prompt")
    ref = data.get("promptFrom")
    if ref is not None:
        source = mapping(ref, f"{at}.promptFrom")
        ref = PromptRef(text(source, "kind", f"{at}.promptFrom"), text(source, "name", f"{at}.promptFrom"))
    return Revision(
        fingerprint=Fingerprint(text(data, "fingerprint", at)),
        system_bytes=count(data, "systemBytes", at),
        tools=data.get("tools", False) is True,
        weight=count(data, "weight", at),
        slots=tuple(sorted(slots, key=lambda slot: slot.index)),
        messages=count(data, "messages", at, 0),
        tokens=count(data, "tokens", at, 0),
        engine=_decode_engine(data.get("engine"), f"{at}.engine"),
        prompt_from=ref,
        lends=data.get("lends", True) is not False,
        prompt=prompt,
    )


def _decode_engine(item: object, at: str) -> Engine:
    if item is None:
        return Engine()
    data = mapping(item, at)
    return Engine(
        settings=text(data, "settings", at, ""),
        kv_tokens=count(data, "kvTokens", at, 0),
        prefill_rate=count(data, "prefillTokensPerSecond", at, 0),
        step_tokens=count(data, "stepTokens", at, 0),
        copy_rate=count(data, "copyTokensPerSecond", at, 0),
    )


def _decode_prompt(item: object, at: str) -> Prompt:
    data = mapping(item, at)
    parts = [data.get(key, "") for key in (SYSTEM_KEY, TOOLS_KEY, MESSAGES_KEY)]
    if not all(isinstance(part, str) for part in parts):
        raise TableError(
            f"{at}: system, tools and messages must be strings"
        )  # without the value, because errors are logged
    try:
        read_messages(parts[2])
    except ValueError as error:
        raise TableError(f"{at}: {error}") from None
    return Prompt(*parts)


def _decode_slot(item: object, at: str) -> Slot:
    data = mapping(item, at)
    state = member(SlotState, data, "state", at, None)
    address = text(data, "address", at, "")
    if state is not SlotState.ABSENT:
        host, colon, port = address.rpartition(":")
        # a number of thousands of digits is not even read
        if not (host and colon and port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536):
            raise TableError(f"{at}: address is {address!r}, expected host:port for a slot that is {state}")
    told = text(data, "tls", at, "")
    tls = engine_tls.parse(told)
    if told and tls is None:  # never plain HTTP instead
        raise TableError(f"{at}: tls is {told!r}, expected KIND/NAME/KEY and the server name, as in Secret/ca/ca.crt/x")
    return Slot(
        index=count(data, "slot", at, most=MOST_SLOT),
        state=state,
        address=address,
        pod=text(data, "pod", at, ""),
        incarnation=text(data, "incarnation", at, ""),
        credential=text(data, "credential", at, ""),
        tls=tls,
    )


def _check_format(data: Mapping[str, Any], at: str) -> None:
    if "format" not in data:
        raise TableError(f"{at}: it has no format, so it is neither a table nor a PromptRoute")
    if data["format"] not in (FORMAT, GUARDED_FORMAT):
        raise TableError(
            f"{at}: format is {data['format']!r}, this router reads formats {FORMAT} and {GUARDED_FORMAT}: "
            "upgrade the router"
        )


def _check_unique(values: Iterable[object], at: str) -> None:
    seen = set()
    for value in values:
        if value in seen:
            raise TableError(f"{at}: {value} is listed twice")
        seen.add(value)
