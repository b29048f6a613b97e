"""Requests that are routed by their model alone: embeddings, scores, tokens, audio.

Their bodies are read for nothing but the model's name, and forwarded as received unless they name a group. A group's
prompt is not put in front, since it instructs a conversation. Does no I/O and reads no clock.
"""

import re

from promptgroup_router.apis.request import ApiKind, ParsedRequest, Preamble, encoded, parse, read_object, wrong
from promptgroup_router.base.errors import ApiError

COUNTED_PATHS: tuple[bytes, ...] = (
    b"/v1/embeddings",
    b"/rerank",
    b"/v1/rerank",
    b"/v2/rerank",
    b"/score",
    b"/v1/score",
    b"/classify",
    b"/pooling",
)
"""Paths whose bodies are JSON objects with a model, and whose answers tell the tokens of the text."""
JSON_PATHS: tuple[bytes, ...] = (b"/detokenize", b"/v1/audio/speech")
"""Other paths whose bodies are JSON objects with a model."""
TOKENIZE_PATH: bytes = b"/tokenize"
FORM_PATHS: tuple[bytes, ...] = (b"/v1/audio/transcriptions", b"/v1/audio/translations")
"""Paths whose bodies are forms (RFC 7578) with a model."""

BOUNDARY_BYTES = 70
"""Longest boundary of a form (RFC 2046 section 5.1.1)."""
PARTS = 64
"""Parts of a form among which the model is looked for; the API has a dozen."""
PART_HEAD_BYTES = 2048
"""Longest head of a part."""
NAME_BYTES = 1024
"""Longest name of a model in a form."""

_MODEL = re.compile(
    rb'content-disposition:[ \t]*form-data;[^\r\n]*?[; \t]name="?model"?[ \t]*(?:;|\r\n|$)', re.IGNORECASE
)


def parse_json(body: bytes) -> ParsedRequest:
    """Read a JSON body.

    Raises:
        ApiError: 400, with the field, its value and what is expected.
    """
    doc, model = read_object(body)
    return _parsed(ApiKind.BY_MODEL, body, model, doc)


def parse_passed(body: bytes) -> ParsedRequest:
    """Read a JSON body at a path of which nothing is known; a header may name the group instead of its model.

    Raises:
        ApiError: 400, with the field, its value and what is expected.
    """
    doc, model = read_object(body, named=False)
    return _parsed(ApiKind.PASSED, body, model, doc)


def parse_tokenize(body: bytes) -> ParsedRequest:
    """Read a request for the tokens of a text or of a chat; those of a chat include the prompt of a group.

    Raises:
        ApiError: 400, with the field, its value and what is expected.
    """
    asked = parse_json(body)
    return parse(ApiKind.CHAT, body) if "messages" in asked.doc else asked


def parse_form(body: bytes) -> ParsedRequest:
    """Read a form.

    Raises:
        ApiError: 400: it is no form, or has no model.
    """
    start, end = _model_span(body)
    name = body[start:end].decode(errors="replace")
    if not name or end - start > NAME_BYTES:
        raise wrong("model", "model", name[:0] or None, "the name of a model or of a PromptGroup")
    return _parsed(ApiKind.FORM, body, name, {"model": name})


def _parsed(kind: ApiKind, body: bytes, model: str, doc: dict[str, object]) -> ParsedRequest:
    return ParsedRequest(
        kind=kind,
        raw=body,
        model=model,
        system="",
        has_system=False,
        tools="",
        tools_in_order=True,
        text=0,
        history=0,
        turn=1,
        ids=0,
        streamed=False,
        media=True,
        doc=doc,
    )


def _model_span(body: bytes) -> tuple[int, int]:
    """Return where the value of the form's model begins and ends."""
    line = body.find(b"\r\n", 0, 2 + BOUNDARY_BYTES + 2)
    boundary = body[: max(line, 0)].rstrip(b" \t")
    if not boundary.startswith(b"--") or len(boundary) < 3:
        raise ApiError(400, "the body is no form: send multipart/form-data with a model", code="invalid_form")
    delimiter, at = b"\r\n" + boundary, line
    for _ in range(PARTS):
        # the head of a part begins with the line feed that ends its delimiter
        head_end = body.find(b"\r\n\r\n", at, at + PART_HEAD_BYTES)
        end = body.find(delimiter, head_end + 4) if head_end >= 0 else -1
        if end < 0:
            break
        if _MODEL.search(body, at, head_end + 2):
            return head_end + 4, end
        at = end + len(delimiter)
    raise ApiError(400, "model is missing in the form, expected the name of a model or of a PromptGroup", param="model")


def with_model(ask: ParsedRequest, _prompt: Preamble, model: str) -> bytes:
    """Return the body with the name of the model that engines serve, if it names one."""
    return renamed(ask, model).raw


def renamed(ask: ParsedRequest, model: str) -> ParsedRequest:
    """Return a request of any API whose body has the name of the model that engines serve, if it names one."""
    if not ask.model:
        return ask
    sent = ask.with_doc(ask.doc | {"model": model})
    if ask.kind is ApiKind.FORM:
        start, end = _model_span(ask.raw)
        sent.raw = ask.raw[:start] + model.encode() + ask.raw[end:]
    else:
        sent.raw = encoded(sent.doc)
    return sent


def as_received(ask: ParsedRequest) -> bytes:
    """Return the body as received."""
    return ask.raw
