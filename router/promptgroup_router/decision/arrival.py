"""Routes or refuses a request that has arrived: steps 1 to 4 of a request's life.

The decision is the same whether the router relays the request or a picker returns an endpoint to a gateway.
"""

from dataclasses import dataclass

from promptgroup_contract import names
from promptgroup_contract.caller_rules import CachedTokens
from promptgroup_router.access.authenticator import NoSender, Sender, Visit
from promptgroup_router.apis import structure
from promptgroup_router.apis.anthropic import VERSION_HEADER
from promptgroup_router.apis.by_model import FORM_PATHS, check_type
from promptgroup_router.apis.endpoints import BY_PATH_ALONE, ENDPOINTS, PASSED, Endpoint
from promptgroup_router.apis.request import ParsedRequest
from promptgroup_router.base.errors import ApiError, shown
from promptgroup_router.decision.composition import features_of
from promptgroup_router.features import told_usage
from promptgroup_router.features.answer_usage import USAGE_REQUEST, HiddenUsage, UnaskedUsage
from promptgroup_router.features.cache_diagnosis import HEADER as DIAGNOSTICS
from promptgroup_router.features.cache_diagnosis import CacheDiagnosis, question, without_question
from promptgroup_router.features.caller_account import open_account
from promptgroup_router.features.kept_request import KeptRequest
from promptgroup_router.features.passed_path import keep_unprotected
from promptgroup_router.features.resumed_stream.feature import resumable
from promptgroup_router.features.sleeping.feature import SleeperRequest
from promptgroup_router.features.stored_responses.by_path import parse_path, route_by_response
from promptgroup_router.routing.model_list import MODELS_PATH, model_card, model_list
from promptgroup_router.routing.route import Identify, Route, check_in, identify_nobody, refuse_empty, route
from promptgroup_router.routing.state import RouterState

NO_SENDER = NoSender()

_READS = (b"GET", b"HEAD")
CODING = b"content-encoding"
_NAMESPACE = names.HEADER_NAMESPACE.encode()

_SERVED = ", ".join(
    [f"POST {path.decode()}" for path in ENDPOINTS]
    + ["GET and DELETE /v1/responses/{id}", "POST /v1/responses/{id}/cancel", "GET /v1/responses/{id}/input_items"]
    + ["GET /v1/models", "GET /v1/models/{id}"]
)


@dataclass(frozen=True, slots=True)
class ModelsAnswer:
    """A list of models, or of the methods of the whole server: no engine is queried for it, and its status is 200."""

    body: bytes
    allow: bytes = b""
    """Methods that some path has, for `OPTIONS *`; the body is empty then."""

    @property
    def fields(self) -> list[tuple[bytes, bytes]]:
        """The header fields of the answer."""
        return [(b"allow", self.allow)] if self.allow else [(b"content-type", b"application/json")]


def endpoint_of(path: bytes, pass_paths: frozenset[bytes] = frozenset()) -> Endpoint:
    """Return the endpoint of a path, which reads its answers; `pass_paths` are those that the settings allow."""
    endpoint = ENDPOINTS.get(path)
    if endpoint is not None:
        return endpoint
    return PASSED if path in pass_paths else BY_PATH_ALONE


def large_body(state: RouterState, method: bytes, path: bytes, body: bytes | bytearray) -> Endpoint | None:
    """Return the endpoint of a request whose body takes too long to parse for others to wait; None for all others."""
    if method != b"POST" or not structure.is_large(body):
        return None
    endpoint = endpoint_of(path, state.pass_paths)
    return None if endpoint is BY_PATH_ALONE else endpoint


def asks_of_digest(headers: dict[bytes, bytes]) -> bool:
    """Return True if the digest of a large body must have what a cache diagnosis compares, by a request's header."""
    return DIAGNOSTICS in headers


def check_coding(headers: dict[bytes, bytes]) -> None:
    """Check that the body of a request is sent as it is: routers have decoded it by now, and a picker cannot.

    Raises:
        ApiError: 415: it is coded (RFC 9110 section 15.5.16).
    """
    coding = headers.get(CODING, b"").decode("latin-1")
    if coding.lower() not in ("", "identity"):
        raise ApiError(
            415,
            f"content-encoding is {shown(coding)}, and behind a gateway bodies are read as they are: send the body "
            "uncompressed and leave the header out, or let the gateway decode it",
            param="content-encoding",
            code="coded_body",
            further=[(b"accept-encoding", b"identity")],
        )


def check_sender(state: RouterState, headers: dict[bytes, bytes], sender: Sender, arrived: float) -> None:
    """Check who sends a request that arrived at a time, before its body is parsed.

    Raises:
        ApiError: 401, 403 or 503: no group lets its sender in.
    """
    if state.asks_callers:
        check_in(state.index, Visit(features_of(state).authenticator, headers, sender, arrived).identify)


def check_head(state: RouterState, headers: dict[bytes, bytes], sender: Sender, arrived: float) -> None:
    """Check a request that arrived at a time, before its body is parsed.

    Raises:
        ApiError: 401, 403 or 503: no group admits its sender. 415: its body has a content coding.
    """
    check_sender(state, headers, sender, arrived)
    check_coding(headers)


def arrive(
    state: RouterState,
    *,
    method: bytes,
    path: bytes,
    headers: dict[bytes, bytes],
    body: bytes | bytearray,
    now: float,
    sender: Sender = NO_SENDER,
    request: ParsedRequest | None = None,
    size: int | None = None,
    came: float | None = None,
    rewrites: bool = True,
    relays: bool = True,
) -> Route | ModelsAnswer:
    """Decide where a request may go; requests of no group are counted.

    Args:
        state: the state of the router or picker.
        method: the method of the request.
        path: its path, without the query.
        headers: its header fields, names in lower case.
        body: its whole body.
        now: monotonic seconds.
        sender: the connection that it came on.
        request: the digest of the body where it was parsed already.
        size: bytes of the decoded body, if it arrived with a content coding.
        came: when it arrived, if it has waited since for keys of an issuer.
        rewrites: whether the answer can be rewritten.
        relays: whether the calling program sends the request itself, and can send another one for the rest of the
            answer.

    Raises:
        ApiError: the request is refused; `form_of` has the form of the answer.
    """
    if path in FORM_PATHS and method == b"POST":
        check_type(headers.get(b"content-type", b""), body, repeated=sender.repeats(b"content-type"))
    # where no group authenticates its callers, identification costs nothing
    identify: Identify = identify_nobody
    if state.asks_callers:
        identify = Visit(features_of(state).authenticator, headers, sender, now if came is None else came).identify
    bytes_read = len(body) if size is None else size
    return _arrive(
        state,
        method,
        path,
        headers,
        body,
        size=bytes_read,
        now=now,
        identify=identify,
        request=request,
        rewrites=rewrites,
        relays=relays,
    )


def _arrive(
    state: RouterState,
    method: bytes,
    path: bytes,
    headers: dict[bytes, bytes],
    body: bytes | bytearray,
    *,
    size: int,
    now: float,
    identify: Identify,
    request: ParsedRequest | None,
    rewrites: bool,
    relays: bool,
) -> Route | ModelsAnswer:
    endpoint = ENDPOINTS.get(path)
    if endpoint is None and path in state.pass_paths:
        endpoint = PASSED
    if endpoint is not None and method == b"POST":
        if state.asks_callers:
            check_in(state.index, identify)
        if request is not None:
            return _by_body(
                state, endpoint, headers, request, size, now=now, identify=identify, rewrites=rewrites, relays=relays
            )
        if CODING in headers:
            check_coding(headers)
        content = body if isinstance(body, bytes) else bytes(body)
        structure.check(content, endpoint.values)
        request = endpoint.parse(content)
        result = _by_body(
            state, endpoint, headers, request, size, now=now, identify=identify, rewrites=rewrites, relays=relays
        )
        if result.candidates.responses is not None:
            result.add(KeptRequest(request))
        return result
    stored = parse_path(path) if endpoint is None else None
    if stored is not None and method in stored.methods:
        namespace = headers.get(_NAMESPACE, b"").decode("latin-1")
        result = route_by_response(
            state.index,
            state.balancer.members,
            stored.response_id,
            body,
            namespace,
            identify=identify,
            salts=features_of(state).salts,
        )
        _tell_usage(result, headers, relays=relays)
        return result
    if stored is not None or endpoint is not None:
        raise _no_such_method(method, stored.methods if stored is not None else (b"POST",))
    return _models(state, method, path, headers, identify)


def _by_body(
    state: RouterState,
    endpoint: Endpoint,
    headers: dict[bytes, bytes],
    request: ParsedRequest,
    size: int,
    *,
    now: float,
    identify: Identify,
    rewrites: bool,
    relays: bool,
) -> Route:
    features = features_of(state)
    cache_question = question(request, headers)
    if cache_question is not None:
        request = without_question(request)
    result = route(
        state.index,
        request,
        headers,
        locations=state.balancer.locations,
        tokens=state.tokens,
        now=now,
        cached=endpoint.cached,
        metered=rewrites,
        identify=identify,
        points=features.routing,
    )
    if endpoint is PASSED:
        keep_unprotected(state.index, result)
    features.unmatched.count(result, request, now)
    refuse_empty(result)
    if result.candidates.sleep is not None:
        result.add(SleeperRequest(features.sleeping, state, result))
    # it reads what the engine answers before others rewrite that
    if result.candidates.max_resumes and relays and (stream := resumable(state, result, request)) is not None:
        result.add(stream)
    counted = size if endpoint.counted else 0
    if (account := open_account(state, features.limiter, result, request, counted, now=now)) is not None:
        result.add(account)
    if USAGE_REQUEST in result.rewrite.changes:
        result.add(UnaskedUsage())
    _tell_usage(result, headers, relays=relays)
    if cache_question is not None:
        result.add(CacheDiagnosis(features.prompt_digests, result, cache_question, request.text, state.metrics))
    return result


def _tell_usage(result: Route, headers: dict[bytes, bytes], *, relays: bool) -> None:
    """Report the usage of a request as its client asks, and cached tokens as its group allows."""
    # a cached answer would disclose the usage of its first client to others
    if relays and told_usage.asks(headers) and result.candidates.responses is None:
        result.add(told_usage.ToldUsage(result.candidates.rules.cached_tokens))
    if (how := result.candidates.rules.cached_tokens) is not CachedTokens.EXACT:
        result.add(HiddenUsage(how))


def _models(
    state: RouterState, method: bytes, path: bytes, headers: dict[bytes, bytes], identify: Identify
) -> ModelsAnswer:
    if path == b"*":  # with OPTIONS alone
        return ModelsAnswer(b"", allow=b"GET, HEAD, POST, DELETE, OPTIONS")
    index, anthropic = state.index, VERSION_HEADER in headers
    body = model_list(index, identify, anthropic=anthropic) if path == MODELS_PATH else None
    if body is None:
        body = model_card(index, path, identify, anthropic=anthropic)
    if body is None:
        served = ", ".join([_SERVED, *sorted(f"POST {pass_path.decode()}" for pass_path in state.pass_paths)])
        raise ApiError(404, f"there is nothing at this path: use one of {served}", code="not_found")
    if method not in _READS:
        raise _no_such_method(method, _READS)
    return ModelsAnswer(body)


def _no_such_method(method: bytes, allowed: tuple[bytes, ...]) -> ApiError:
    listed = ", ".join(item.decode() for item in allowed)
    return ApiError(
        405,
        f"the method {method.decode('latin-1')[:32]} is not allowed at this path: use {listed}",
        code="method_not_allowed",
        allow=listed,
    )
