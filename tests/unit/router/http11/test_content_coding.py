import gzip
import time
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.base.errors import ApiError
from promptgroup_router.http11.content_coding import MOST_MEMBERS, coding_of, decoded, too_large, zstd


def raw_deflate(data):
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


CODERS = {
    "gzip": ("gzip", gzip.compress),
    "deflate": ("deflate", zlib.compress),
    "deflate without its envelope": ("deflate", raw_deflate),
    "zstd": ("zstd", zstd.compress),
}


@pytest.mark.parametrize("case", CODERS)
@given(data=st.binary(max_size=2000))
def test_a_body_comes_out_as_it_went_in(case, data):
    coding, code = CODERS[case]
    assert decoded(coding, code(data), 2000) == data
    assert decoded(coding, bytearray(code(data)), len(data)) == data
    if data:
        assert decoded(coding, code(data), len(data) - 1) is None


@pytest.mark.parametrize("case", CODERS)
def test_of_a_bomb_no_more_than_the_bound_is_decoded(case):
    coding, code = CODERS[case]
    bomb = code(bytes(200 << 20))
    began = time.process_time()
    for _ in range(20):
        assert decoded(coding, bomb, 1 << 20) is None
    assert time.process_time() - began < 20 * 0.2  # 200 MiB take longer


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_parts_of_a_body_are_joined_and_counted_together(coding):
    code = CODERS[coding][1]
    assert decoded(coding, code(b"a") + code(b"b"), 2) == b"ab"
    assert decoded(coding, code(b"a") + code(b"b"), 1) is None
    with pytest.raises(ApiError, match=f"more than {MOST_MEMBERS} parts"):
        decoded(coding, code(b"") * (MOST_MEMBERS + 1), 10)


@pytest.mark.parametrize("case", CODERS)
def test_a_body_that_is_cut_or_something_else_is_refused(case):
    coding, code = CODERS[case]
    whole = code(b"some text that is long enough" * 9)
    for data in (b"", whole[:-3], whole[: len(whole) // 2], b"{}", whole + b"x"):
        with pytest.raises(ApiError) as refused:
            decoded(coding, data, 1000)
        assert (refused.value.status, refused.value.code) == (400, "coded_body")


@given(st.sampled_from(["gzip", "deflate", "zstd"]), st.binary(max_size=300))
def test_garbage_is_refused_or_within_the_bound(coding, data):
    try:
        found = decoded(coding, data, 1000)
    except ApiError as error:
        assert error.status == 400  # noqa: PT017 - what is decoded is right, too
    else:
        assert found is None or len(found) <= 1000


def test_a_window_that_is_too_large_for_routers_is_refused():
    packer = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 27})
    data = packer.compress(b"x", mode=packer.FLUSH_BLOCK) + packer.compress(b"x" * 100, mode=packer.FLUSH_FRAME)
    with pytest.raises(ApiError, match="cannot be decoded"):
        decoded("zstd", data, 1000)


@pytest.mark.parametrize(
    ("told", "coding"),
    [
        (b"gzip", "gzip"),
        (b"X-GZIP", "gzip"),
        (b"identity", ""),
        (b"", ""),
        (b" zstd ", "zstd"),
        (b"deflate", "deflate"),
    ],
)
def test_the_coding_of_a_body_is_told_by_its_header(told, coding):
    assert coding_of({b"content-encoding": told}) == coding
    assert coding_of({}) == ""


@pytest.mark.parametrize("told", [b"br", b"gzip, gzip", b"compress", b"\xff" * 300])
def test_other_codings_are_refused_with_those_that_can_be_decoded(told):
    with pytest.raises(ApiError) as refused:
        coding_of({b"content-encoding": told})
    assert (refused.value.status, refused.value.code) == (415, "coded_body")
    assert (b"accept-encoding", b"gzip, deflate, zstd") in refused.value.headers()
    assert len(str(refused.value)) < 400


def test_what_is_too_large_is_told_with_the_bound():
    assert (too_large(7).status, "7 bytes" in str(too_large(7))) == (413, True)
