"""The hit rates of all cache sizes at once are those of caches that are played one by one."""

from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from promptgroup_cli.forecast.reuse import TraceRequest, curve

BLOCK = 4


def played(requests, size):
    """Return the tokens that a least-recently-used cache of whole blocks finds."""
    cache = OrderedDict()
    found = used = 0
    for number, request in enumerate(requests):
        own = request.prompt + request.answer
        distance = 0
        order = {}
        for key in reversed(cache):
            distance += cache[key]
            order[key] = distance
        for at, block in enumerate(request.blocks, start=1):
            if order.get(block, size + 1) > size or own > size:
                break
            found += BLOCK - (at * BLOCK == request.prompt)
        rest = request.prompt - BLOCK * len(request.blocks) + request.answer
        for key, tokens in ((-1 - number, rest), *((each, BLOCK) for each in reversed(request.blocks))):
            cache.pop(key, None)
            cache[key] = tokens
        used = sum(cache.values())
    assert used >= 0
    return found


@st.composite
def traces(draw):
    """Prompts as paths in a tree: a block's id tells all that came before it."""
    requests = []
    for _ in range(draw(st.integers(1, 12))):
        path, block = [], 0
        for branch in draw(st.lists(st.integers(0, 2), max_size=5)):
            block = block * 3 + branch + 1
            path.append(block)
        rest = draw(st.integers(0 if path else 1, BLOCK - 1))
        requests.append(TraceRequest(tuple(path), BLOCK, BLOCK * len(path) + rest, draw(st.integers(0, 9))))
    return requests


@given(traces(), st.integers(1, 200))
def test_a_curve_is_right_at_every_size(requests, size):
    found = curve(requests)
    assert round(found.hit_rate(size) * found.prompt_tokens) == played(requests, size)


@given(traces())
def test_more_room_never_finds_less(requests):
    found = curve(requests)
    shares = [found.hit_rate(size) for size in range(0, 400, 7)]
    assert shares == sorted(shares)
    assert shares[-1] <= found.most
