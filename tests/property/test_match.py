"""Matching by content against the definition: the longest declared text that the system text begins with."""

import orjson
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.apis.request import ApiKind, parse
from promptgroup_router.rings.index import build_index
from promptgroup_router.routing.match import ByContent, match_group
from support.tables import group, revision, table

# few letters, so that texts are prefixes of each other; of one, two and four bytes
texts = st.text(alphabet="aö🙂", max_size=6)
tools = st.sampled_from(["", '[{"a":1,"b":2}]', "[2]"])


@given(declared=st.sets(st.tuples(texts, tools), max_size=6), system=texts, given_tools=tools, data=st.data())
def test_the_longest_declared_prefix_wins_whether_its_text_is_known_or_not(declared, system, given_tools, data):
    listed = data.draw(st.permutations(sorted(declared)))
    known = data.draw(st.lists(st.booleans(), min_size=len(listed), max_size=len(listed)))
    groups = [
        group(f"g{number}", revision(text, tools=spelled, known=each))
        for number, ((text, spelled), each) in enumerate(zip(listed, known, strict=True))
    ]
    body = {"model": "llama", "messages": [{"role": "system", "content": system}]}
    if given_tools:
        body["tools"] = orjson.Fragment(given_tools)
    ask = parse(ApiKind.CHAT, orjson.dumps(body))
    fitting = [
        (len(text.encode()), f"chat/g{number}")
        for number, (text, spelled) in enumerate(listed)
        if spelled == given_tools and system.startswith(text) and (text or spelled)
    ]
    # a model without a group is not served at all
    view = build_index(table(*groups, group("other", revision("never said"))))
    found = match_group(view, ask)
    assert (found.claim.label if isinstance(found, ByContent) else None) == (max(fitting)[1] if fitting else None)
