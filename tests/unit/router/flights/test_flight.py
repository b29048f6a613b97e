"""Flights, without sockets."""

import pytest

from promptgroup_router.apis.request import ApiKind
from promptgroup_router.flights.flight import Flight
from promptgroup_router.flights.follower import STALL_SECONDS
from promptgroup_router.flights.source import SourceState
from promptgroup_router.response_cache.answer import MOST_BYTES
from support.followed import Origin, TakenAnswer, follower

pytestmark = pytest.mark.interpreted

STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Landed:
    def __init__(self) -> None:
        self.times = 0

    def landed(self) -> None:
        self.times += 1


def flown():
    landed, origin = Landed(), Origin()
    flight = Flight(ApiKind.CHAT, landed)
    flight.depart(origin)
    return flight, landed, origin


def joined(flight):
    client = TakenAnswer()
    served = follower(flight.source, client, flight)
    flight.follow(served)
    return served, client


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def test_a_late_follower_gets_the_whole_answer():
    flight, landed, _ = flown()
    _, early = joined(flight)
    flight.write(STREAM + chunk(b"data: one\n\nda"))
    _, late = joined(flight)
    flight.write(chunk(b"ta: two\n\n") + b"0\r\n\r\n")
    flight.finish(keep=True)
    assert early.sent == late.sent
    assert late.sent.endswith(chunk(b"data: one\n\n") + chunk(b"data: two\n\n") + b"0\r\n\r\n")
    assert (landed.times, flight.complete, flight.joinable) == (1, True, False)
    assert flight.source.pieces == [b"data: one\n\n", b"data: two\n\n"]


def test_the_origin_is_left_when_the_last_follower_leaves():
    flight, landed, origin = flown()
    (first, _), (second, _) = joined(flight), joined(flight)
    first.client_left()
    assert (origin.told, landed.times) == ([], 0)
    second.client_left()
    assert (origin.told, landed.times) == (["left"], 1)
    assert flight.source.state is SourceState.CUT


def test_deadlines_are_looked_at_once_however_many_followers_ask():
    flight, _, origin = flown()
    served = [joined(flight)[0] for _ in range(3)]
    for now in (1.0, 2.0):
        for each in served:
            each.tick(now)
    assert origin.told == ["tick 1", "tick 2"]


def test_a_slow_follower_holds_up_nobody_as_long_as_the_answer_is_kept_whole():
    flight, _, origin = flown()
    slow, slow_client = joined(flight)
    _, quick = joined(flight)
    flight.write(STREAM)
    slow.pause()
    flight.write(chunk(b"data: one\n\n"))
    assert origin.told == []
    assert quick.sent.endswith(chunk(b"data: one\n\n"))
    slow.resume()
    assert slow_client.sent == quick.sent


def test_an_answer_that_is_too_large_to_keep_goes_at_the_pace_of_the_slowest():
    flight, _, origin = flown()
    slow, slow_client = joined(flight)
    _, quick = joined(flight)
    large = b"data: " + b"x" * MOST_BYTES + b"\n\n"
    flight.write(STREAM + chunk(large))
    assert not flight.joinable
    assert not flight.complete
    slow.pause()
    assert origin.told == ["pause"]
    flight.write(chunk(b"data: two\n\n"))
    assert flight.source.dropped == 1
    slow.resume()
    assert origin.told == ["pause", "resume"]
    flight.write(b"0\r\n\r\n")
    flight.finish(keep=True)
    assert slow_client.sent == quick.sent
    assert quick.sent.endswith(chunk(b"data: two\n\n") + b"0\r\n\r\n")
    assert flight.source.pieces == []


def test_who_reads_nothing_holds_up_the_others_of_a_large_answer_for_a_while_only():
    flight, _, origin = flown()
    (slow, slow_client), (quick, quick_client) = joined(flight), joined(flight)
    flight.write(STREAM + chunk(b"data: " + b"x" * MOST_BYTES + b"\n\n"))
    slow.pause()
    slow.tick(STALL_SECONDS - 1)
    assert (slow_client.ended, origin.told[0]) == ("", "pause")
    slow.tick(STALL_SECONDS)
    assert slow_client.ended == "reset"
    assert origin.told[-1] == "resume"
    quick.pause()
    quick.tick(2 * STALL_SECONDS)  # nobody waits for this one
    quick.resume()
    flight.write(chunk(b"data: two\n\n") + b"0\r\n\r\n")
    flight.finish(keep=True)
    assert quick_client.ended == "kept"


def test_a_body_that_is_too_large_to_keep_goes_out_in_chunks():
    flight, _, _ = flown()
    _, client = joined(flight)
    body = b"x" * (MOST_BYTES + 10)
    flight.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body[:10])
    assert client.sent == b""
    flight.write(body[10:])
    flight.finish(keep=True)
    assert client.sent.endswith(b"0\r\n\r\n")
    assert client.sent.count(b"x" * 1000) >= MOST_BYTES // 1000 - 2


def test_an_answer_that_ends_with_its_connection_is_passed_on_and_may_not_be_kept():
    flight, _, _ = flown()
    _, client = joined(flight)
    flight.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nbody")
    flight.finish(keep=False)
    assert client.sent.endswith(b"\r\n\r\nbody")
    assert not flight.complete


def test_an_error_of_the_router_and_a_cut_reach_all():
    flight, landed, _ = flown()
    clients = [joined(flight)[1] for _ in range(2)]
    flight.answer(503, [], b"busy")
    assert [client.sent for client in clients] == [b"503 busy"] * 2
    flight, landed, _ = flown()
    clients = [joined(flight)[1] for _ in range(2)]
    flight.write(STREAM + chunk(b"data: one\n\n"))
    flight.cut(visibly=False)
    assert [client.ended for client in clients] == ["cut"] * 2
    assert landed.times == 1


def test_an_origin_that_comes_after_the_end_is_not_kept():
    flight, _, _ = flown()
    flight.answer(503, [], b"busy")
    origin = Origin()
    flight.depart(origin)
    flight.tick(5.0)
    assert origin.told == []
