"""Requests that are routed by their model alone: embeddings, scores, tokens, audio.

Their bodies are read for nothing but the model's name, and forwarded as received unless they name a group. A group's
prompt is not put in front, since it instructs a conversation.
"""

import re

from promptgroup_contract.caller_rules import EngineField
from promptgroup_router.apis.request import ApiKind, ParsedRequest, Preamble, encoded, parse, read_object, wrong
from promptgroup_router.base.errors import ApiError, shown

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
"""Paths whose bodies are JSON objects with a model, and whose answers report the tokens of the text."""
JSON_PATHS: tuple[bytes, ...] = (b"/detokenize", b"/v1/audio/speech")
"""Other paths whose bodies are JSON objects with a model."""
TOKENIZE_PATH: bytes = b"/tokenize"
FORM_PATHS: tuple[bytes, ...] = (b"/v1/audio/transcriptions", b"/v1/audio/translations")
"""Paths whose bodies are forms (RFC 7578) with a model."""

BOUNDARY_BYTES = 70
"""Longest boundary of a form (RFC 2046 section 5.1.1)."""
PARTS = 64
"""Most parts of a form; the API has two dozen."""
PART_HEAD_BYTES = 2048
"""Longest head of a part."""
NAME_BYTES = 1024
"""Longest name of a model in a form."""

_TOKEN = rb"[A-Za-z0-9_.\[\]-]+"
_DISPOSITION = re.compile(
    rb'form-data((?:[ \t]*;[ \t]*(?:name=(?:"' + _TOKEN + rb'"|' + _TOKEN + rb')|filename="[^"\\\x00-\x1f]*"'
    rb"|filename=" + _TOKEN + rb"|filename\*=[A-Za-z0-9_.%'!#$&+^`{}~-]+))++)[ \t]*",
    re.IGNORECASE,
)
"""The only accepted form of a part's `Content-Disposition`: engines accept further spellings of a name (RFC 2231), and
would read another field than the router."""
_NAME = re.compile(rb'[; \t]name="?(' + _TOKEN + rb')(?=["; \t]|$)', re.IGNORECASE)
_HEAD_LINE = re.compile(rb"([A-Za-z0-9-]+):[ \t]*([^\r\n\x00]*)")
_TYPE = re.compile(
    rb"""multipart/form-data[ \t]*;[ \t]*boundary=("?)([0-9A-Za-z'()+_,./:=?-]{1,70})\1[ \t]*""", re.IGNORECASE
)
_VALUE_BYTES = 65536
"""Longest value of a field that is read."""


def parse_json(body: bytes) -> ParsedRequest:
    """Read a JSON body.

    Raises:
        ApiError: 400, with the field, its value and what is expected.
    """
    doc, model = read_object(body)
    return _parsed(ApiKind.BY_MODEL, body, model, doc)


def parse_passed(body: bytes) -> ParsedRequest:
    """Parse a JSON body at a path that the router has no parser for; a header may name the group instead of its model.

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
    parsed_request = parse_json(body)
    return parse(ApiKind.CHAT, body) if "messages" in parsed_request.doc else parsed_request


def parse_form(body: bytes) -> ParsedRequest:
    """Read a form. Fields of engines are part of the request's document, with their value where it is a JSON object.

    Raises:
        ApiError: 400: it is no form that all readers read alike, or has no model.
    """
    fields = _fields(body)
    start, end = fields.get("model", (0, 0))
    name = body[start:end].decode(errors="replace")
    if not name or end - start > NAME_BYTES:
        raise wrong("model", "model", name[:0] or None, "the name of a model or of a PromptGroup")
    doc: dict[str, object] = {"model": name}
    for spelled, (start, end) in fields.items():
        if (field := _engine_field(spelled)) is EngineField.VLLM_XARGS:
            doc[field.value] = _object(spelled, body[start:end])
        elif field is not None:
            doc[field.value] = True
    return _parsed(ApiKind.FORM, body, name, doc)


def check_type(content_type: bytes, body: bytes | bytearray, *, repeated: bool) -> None:
    """Check that an engine takes the same boundary for a form as the router, which finds it in the body.

    Args:
        content_type: the header field of the request.
        body: the form.
        repeated: whether the request has the field more than once.

    Raises:
        ApiError: 400: it does not, or may read names of fields in another coding.
    """
    result = _TYPE.fullmatch(content_type)
    if repeated or result is None or not body.startswith(b"--%b\r\n" % result[2]):
        way = "send `multipart/form-data; boundary=...` once, with the boundary of the body and nothing else"
        message = f"content-type is {shown(content_type.decode('latin-1'))}, which is not that of the form: {way}"
        raise ApiError(400, message, param="content-type", code="invalid_form")


def _engine_field(name: str) -> EngineField | None:
    """Return the engine's field that a name begins with: its end may be lost in the coding that a client declares."""
    lower = name.lower()
    return next((field for field in EngineField if lower.startswith(field.value)), None)


def _object(name: str, value: bytes) -> object:
    """Return a field's value, which engines merge with other fields."""
    if name != EngineField.VLLM_XARGS.value or len(value) > _VALUE_BYTES:
        message = f"{shown(name)} of the form is not vllm_xargs with at most {_VALUE_BYTES} bytes: leave it out"
        raise ApiError(400, message, param=EngineField.VLLM_XARGS.value, code="invalid_form")
    return read_object(value, named=False)[0]


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


def _fields(body: bytes) -> dict[str, tuple[int, int]]:
    """Return the fields of a form, with where their values begin and end.

    Raises:
        ApiError: 400: the body is no form, or one that another reader could read otherwise.
    """
    line = body.find(b"\r\n", 0, 2 + BOUNDARY_BYTES + 2)
    boundary = body[: max(line, 0)].rstrip(b" \t")
    if not boundary.startswith(b"--") or len(boundary) < 3:
        raise ApiError(400, "the body is no form: send multipart/form-data with a model", code="invalid_form")
    delimiter, at, count, fields = b"\r\n" + boundary, line, 0, dict[str, tuple[int, int]]()
    while body[at : at + 2] == b"\r\n":
        head_end = body.find(b"\r\n\r\n", at, at + PART_HEAD_BYTES)
        end = body.find(delimiter, head_end + 4) if head_end >= 0 else -1
        if end < 0 or count == PARTS:
            break
        name = _name(body[at + 2 : head_end])
        if name in fields and (name == "model" or _engine_field(name) is not None):
            raise ApiError(400, f"the form has {shown(name)} twice: send it once", param=name, code="invalid_form")
        fields[name] = (head_end + 4, end)
        count += 1
        at = end + len(delimiter)
    if body[at : at + 2] != b"--":
        raise ApiError(400, f"the form does not end, or has more than {PARTS} parts: send fewer", code="invalid_form")
    return fields


def _name(head: bytes) -> str:
    """Return the name of a part's field."""
    lines = [_HEAD_LINE.fullmatch(line) for line in head.split(b"\r\n")]
    value = [line[2] for line in lines if line is not None and line[1].lower() == b"content-disposition"]
    whole = _DISPOSITION.fullmatch(value[0]) if len(value) == 1 and None not in lines else None
    names: list[bytes] = _NAME.findall(whole[1]) if whole is not None else []
    if len(names) != 1:
        shape = 'one line `Content-Disposition: form-data; name="..."`, with letters, digits and `_-.[]` in the name'
        raise ApiError(400, f"a part of the form is not named plainly: give it {shape}", code="invalid_form")
    return names[0].decode()


def with_model(request: ParsedRequest, _prompt: Preamble, model: str) -> bytes:
    """Return the body with the name of the model that engines serve, if it names one."""
    return renamed(request, model).raw


def renamed(request: ParsedRequest, model: str) -> ParsedRequest:
    """Return a request of any API whose body has the name of the model that engines serve, if it names one."""
    if not request.model:
        return request
    sent = request.with_doc(request.doc | {"model": model})
    if request.kind is ApiKind.FORM:
        start, end = _fields(request.raw)["model"]
        sent.raw = request.raw[:start] + model.encode() + request.raw[end:]
    else:
        sent.raw = encoded(sent.doc)
    return sent


def as_received(request: ParsedRequest) -> bytes:
    """Return the body as received."""
    return request.raw
