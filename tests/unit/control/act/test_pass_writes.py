import threading

import pytest

from promptgroup_operator.act.pass_writes import (
    AT_ONCE,
    CONFLICTS,
    SLOWEST,
    FailedWrite,
    FailedWrites,
    PassWrites,
    Write,
)
from promptgroup_operator.base.errors import ClusterError, NotLeadingError
from promptgroup_operator.base.fair_pool import FairPool
from promptgroup_operator.kube.api_server import REQUEST_SECONDS
from promptgroup_operator.world.snapshot import Key

KEY = Key("chat", "support")
STUCK_SECONDS = 300.0


class Server:
    """An API server that a test makes fail, by an error for each object, and passes that write to it."""

    def __init__(self):
        self.now, self.took, self.errors, self.tried, self.away = 0.0, 0.0, {}, [], False
        self.known = {}

    def begin(self):
        self.writes = PassWrites(self.known, ["a prompt that nobody may read"], lambda: self.away, lambda: self.now)
        return self.writes

    def end(self):
        self.known = self.writes.failed

    def write(self, subject, content="x"):
        return self.writes.attempt(subject, content, lambda: self.perform(subject))

    def perform(self, subject):
        self.tried.append(subject)
        if subject in self.errors:
            self.now += self.took
            raise self.errors[subject]


@pytest.fixture
def server():
    return Server()


def error(status=None, **more):
    return ClusterError("PATCH x: because", status=status, **more)


def test_a_write_that_fails_is_repeated_after_a_back_off_and_no_other_waits_for_it(server):
    server.errors["Pod a"] = error(503)
    tries = []
    for second in range(100):
        server.now = float(second)
        server.begin()
        server.write("Pod a")
        assert server.write("Pod b") is None
        tries.append(server.tried.count("Pod a"))
        server.end()
    assert 6 <= tries[-1] <= 12, "after 0.2, 0.4, 0.8, ..., 30 s"
    assert server.tried.count("Pod b") == 100
    del server.errors["Pod a"]
    server.now += 31
    server.begin()
    assert server.write("Pod a") is None
    assert (server.writes.problem(), server.writes.failed) == (None, {})


def several(server, *subjects):
    """Writes of several objects, as one call tries them."""
    return [Write(subject, "x", lambda subject=subject: server.perform(subject)) for subject in subjects]


def test_independent_objects_are_written_at_the_same_time():
    meet = threading.Barrier(AT_ONCE, timeout=30)
    pool = FairPool(2 * AT_ONCE, "write")
    writes = FailedWrites(pool).begin(KEY, [], lambda: False)
    pods = [Write(f"Pod {number}", "x", lambda: meet.wait() and None) for number in range(2 * AT_ONCE)]
    assert writes.attempt_all(pods) == [None] * len(pods)
    assert writes.problem() is None
    pool.close()
    failed, _ = writes.attempt_all(pods[:2])
    assert failed.words == "Pod 0 was not written in time"


def test_of_several_writes_one_that_fails_stops_no_other_and_is_held_back_alone(server):
    server.errors["Pod b"] = error(503)
    server.begin()
    first, second, third = server.writes.attempt_all(several(server, "Pod a", "Pod b", "Pod c"))
    assert (first, second.error.status, third) == (None, 503, None)
    server.end()
    server.begin()
    assert server.writes.attempt_all(several(server, "Pod a", "Pod b", "Pod c"))[1] is second
    assert server.tried == ["Pod a", "Pod b", "Pod c", "Pod a", "Pod c"]


def test_of_several_writes_all_failures_are_known_before_one_ends_the_pass(server):
    server.errors = {"Pod a": error(409), "Pod b": error(503)}
    server.begin()
    with pytest.raises(ClusterError) as ended:
        server.writes.attempt_all(several(server, "Pod a", "Pod b", "Pod c"))
    assert ended.value.status == 409
    assert server.tried == ["Pod a", "Pod b", "Pod c"]
    assert sorted(subject for subject, _ in server.writes.failed) == ["Pod a", "Pod b"]


def test_what_is_refused_is_tried_at_once_in_another_form_and_what_got_no_answer_is_not(server):
    server.errors = {"Deployment a": error(422), "Deployment b": error()}
    server.begin()
    assert server.write("Deployment a", "x") is not None
    assert server.write("Deployment b", "x") is not None
    server.errors.clear()
    assert server.write("Deployment a", "y") is None
    assert server.write("Deployment b", "y") is not None


def test_the_server_is_asked_for_quiet_for_one_object_only(server):
    server.errors["Pod a"] = error(429, retry_after=60.0)
    server.begin()
    server.write("Pod a")
    server.end()
    server.now = 59.0
    server.begin()
    server.write("Pod a")
    assert server.write("Pod b") is None
    assert server.tried == ["Pod a", "Pod b"]


def test_the_pass_ends_where_the_server_is_away_or_this_process_does_not_lead(server):
    server.errors = {"Pod a": error(), "Pod b": NotLeadingError()}
    server.begin()
    server.away = True
    with pytest.raises(ClusterError, match="because"):
        server.write("Pod a")
    server.away = False
    with pytest.raises(NotLeadingError):
        server.write("Pod b")


def test_a_conflict_ends_the_pass_until_it_lasts(server):
    server.errors["Pod a"] = error(409)
    for _ in range(CONFLICTS):
        server.begin()
        with pytest.raises(ClusterError):
            server.write("Pod a")
        assert server.writes.due().total_seconds() == 0
        server.end()
    server.begin()
    assert server.write("Pod a") is not None
    assert "because" in server.writes.problem().message


def test_a_refusal_is_told_before_other_failures_and_in_its_first_words(server):
    server.errors = {"Pod a": error(503), "Pod b": ClusterError("PATCH b: id 1", status=422)}
    server.begin()
    server.write("Pod a")
    server.write("Pod b")
    problem = server.writes.problem()
    assert (problem.reason, problem.message) == ("ObjectRefused", "PATCH b: id 1; 1 more writes fail")
    server.end()
    server.now = 60.0
    server.errors["Pod b"] = ClusterError("PATCH b: id 2", status=422)
    server.begin()
    server.write("Pod a")
    server.write("Pod b")
    assert server.writes.problem() == problem
    server.writes.forgive(server.write("Pod b"))
    assert server.writes.problem().reason == "WriteFailed"


def test_a_message_quotes_no_prompt(server):
    server.errors["Secret a"] = ClusterError("denied: 'a prompt that nobody may read'", status=403)
    server.begin()
    server.write("Secret a")
    assert server.writes.problem().message == "denied: '[withheld]'"


def test_a_pass_ends_in_time_however_many_objects_hang(server):
    pods = [f"Pod {number}" for number in range(40)]
    server.errors = dict.fromkeys(pods, error())
    server.took = REQUEST_SECONDS
    for _ in range(3):
        server.begin()
        began = server.now
        for each in pods:
            server.write(each)
        assert server.write("PromptRoute a") is None
        assert server.now - began <= SLOWEST * REQUEST_SECONDS < STUCK_SECONDS / 2
        server.now += 1
        server.end()


def test_a_group_that_is_gone_is_forgotten():
    failures = FailedWrites()
    writes = failures.begin(KEY, [], lambda: False)
    writes.failed["Pod a", ""] = FailedWrite(error(), "x", 1, 1e12)
    failures.end(KEY, writes)
    assert failures.begin(KEY, [], lambda: False).failed_before("Pod a")
    failures.forget(KEY)
    assert not failures.begin(KEY, [], lambda: False).failed_before("Pod a")
