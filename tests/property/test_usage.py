"""The usage of any answer is the one at its place, whatever a client or a model has written around it."""

import json

from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.apis.usage import MOST_PARSED, MOST_TOKENS, MessagesTail, ResponsesTail, Tail
from promptgroup_router.documents.members import MOST_NAME, NOWHERE, MemberReader

NAMES = st.sampled_from(["usage", "response", "message", "prompt_tokens", "a", '"usage":', "\\", "ü"])
HOSTILE = st.sampled_from(['{"usage":{', '"usage":{"prompt_tokens":0}', "data: ", "\\", '\\"', '"', "usage"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 10**9) | st.floats(allow_nan=False) | st.text(max_size=5) | HOSTILE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(max_size=3), inner, max_size=4),
    max_leaves=15,
)


PLACES = {"": Tail, "response": ResponsesTail, "message": MessagesTail}


def member(doc: object, *path: str) -> object:
    """The member at a path of a document, as a parser of all of it finds it."""
    for name in path:
        doc = doc.get(name) if name and isinstance(doc, dict) else doc if not name else None
    return doc


def parts(text: bytes, cuts: list[float]) -> list[bytes]:
    places = sorted(int(len(text) * each) for each in cuts)
    return [text[at:to] for at, to in zip([0, *places], [*places, len(text)], strict=True)]


DOCUMENTS = VALUES | st.dictionaries(NAMES, VALUES, max_size=5)
CUTS = st.lists(st.floats(0, 1), max_size=5)


@given(
    doc=DOCUMENTS,
    told=st.none() | st.fixed_dictionaries({"prompt_tokens": VALUES, "input_tokens": st.integers(0, 2 * MOST_TOKENS)}),
    under=st.sampled_from(list(PLACES)),
    plain=st.booleans(),
    cuts=CUTS,
)
def test_any_answer_is_read_as_by_a_parser_of_all_of_it(doc, told, under, plain, cuts):
    if isinstance(doc, dict):
        inner = doc.get(under, {}) if under else doc
        if told is not None and isinstance(inner, dict):
            inner = inner | {"usage": told}
            doc = doc | ({under: inner} if under else inner)
        if under == "message":  # events tell it at two places, of which the other one would count
            doc = {name: value for name, value in doc.items() if name != "usage"}
        # one of three is too long to be parsed at once
        doc = doc | ({"filler": "x" * MOST_PARSED} if len(cuts) % 3 == 2 else {})
    wanted = member(doc, under, "usage", "prompt_tokens" if not under else "input_tokens")
    known = isinstance(wanted, int) and not isinstance(wanted, bool) and 0 <= wanted < MOST_TOKENS
    body = json.dumps(doc, ensure_ascii=plain).encode(errors="surrogatepass")
    texts = [b"data: %b\n\n" % body] if under else [body, b"data: %b\n\n" % body]
    for text in texts:
        tail = PLACES[under]()
        for part in parts(text, cuts):
            tail.add(part)
        found = tail.usage()
        assert (found.prompt_tokens if found is not None else None) == (wanted if known else None)


@given(doc=DOCUMENTS, under=st.sampled_from(["", "response"]), plain=st.booleans(), cuts=CUTS)
def test_a_member_is_found_at_its_place_in_any_parts(doc, under, plain, cuts):
    body = json.dumps(doc, ensure_ascii=plain).encode(errors="surrogatepass")
    reader = MemberReader(b"usage", under.encode())
    for part in parts(body, cuts):
        reader.feed(part)
    wanted = member(doc, under, "usage") if isinstance(doc, dict) else None
    if isinstance(wanted, dict):
        assert json.loads(reader.value) == wanted
        assert body[reader.begin :].startswith(reader.value)
    else:
        assert reader.begin == NOWHERE
        text = isinstance(wanted, str) and len(json.dumps(wanted, ensure_ascii=plain).encode()) - 2 <= MOST_NAME
        assert (json.loads(reader.value) if reader.value else None) == (wanted if text else None)
