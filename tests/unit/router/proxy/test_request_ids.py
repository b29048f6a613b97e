from promptgroup_router.http11.http1 import parse_request
from promptgroup_router.http11.reader import HttpRequest
from promptgroup_router.proxy.request_ids import MOST_BYTES, RequestIds


def request(*headers: bytes) -> HttpRequest:
    return HttpRequest(parse_request(b"\r\n".join([b"GET / HTTP/1.1", b"host: h", *headers, b"", b""])), b"")


def test_no_two_ids_are_the_same_within_a_router_or_between_two():
    routers = [RequestIds() for _ in range(20)]
    made = [ids.new() for _ in range(50) for ids in routers]
    assert len(set(made)) == len(made)
    assert all(each.startswith(b"req-") and len(each) < 64 for each in made)


def test_a_client_that_has_an_id_keeps_it():
    ids = RequestIds()
    assert ids.of(request(b"x-request-id: mine")) == b"mine"
    assert ids.of(request()) != ids.of(request())


def test_an_id_that_is_too_long_is_replaced():
    ids = RequestIds()
    longest = b"i" * MOST_BYTES
    assert ids.of(request(b"x-request-id: " + longest)) == longest
    assert ids.of(request(b"x-request-id: " + longest + b"i")).startswith(b"req-")
