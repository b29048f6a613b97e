import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.reading.letters import LetterReader, head


@given(st.dictionaries(st.text(max_size=5), st.integers(0, 9), max_size=3), st.binary(max_size=40), st.data())
def test_a_frame_is_the_same_however_it_is_cut(document, content, data):
    sent, reader = head(document, len(content)) + content, LetterReader()
    for _ in range(2):  # the second one finds nothing of the first
        at, letter = 0, None
        while at < len(sent):
            assert letter is None
            size = data.draw(st.integers(1, len(sent) - at))
            letter, at = reader.feed(sent[at : at + size]), at + size
        assert letter == (document, content)


def test_no_room_is_made_for_what_has_not_come():
    reader = LetterReader()
    tracemalloc.start()
    try:
        assert reader.feed(head({}, 2**31)[:12]) is None
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()
