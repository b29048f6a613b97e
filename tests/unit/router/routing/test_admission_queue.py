import pytest

from promptgroup_router.routing.admission_queue import (
    AGE_SECONDS,
    LOOKS,
    NEW_SECONDS,
    NOBODYS,
    PASSED_OVER,
    WAIT_SECONDS,
    AdmissionQueue,
    Share,
)


def test_sessions_that_have_begun_come_first_then_the_order_of_arrival():
    holding, served = AdmissionQueue(), []
    holding.put("new", 0.0, new=True)
    holding.put("first", 1.0, new=False)
    holding.put("second", 2.0, new=False)
    holding.admit(lambda item: served.append(item) or True)
    assert served == ["first", "second", "new"]
    assert not holding


def test_what_does_not_fit_is_passed_over_and_keeps_its_place():
    holding, served = AdmissionQueue(), []
    for number in range(3):
        holding.put(number, float(number), new=False)
    holding.admit(lambda item: item != 0 and (served.append(item) or True))
    assert served == [1, 2]
    holding.admit(lambda item: served.append(item) or True)
    assert served == [1, 2, 0]


def test_a_full_cluster_costs_a_few_looks_only():
    holding, asked = AdmissionQueue(), []
    for number in range(100):
        holding.put(number, float(number), new=False)
    holding.admit(lambda item: asked.append(item) is not None)
    assert asked == list(range(PASSED_OVER))
    assert len(holding) == 100


def test_nobody_waits_for_too_long_and_a_new_session_less():
    holding = AdmissionQueue()
    holding.put("old", 0.0, new=False)
    holding.put("new", 0.0, new=True)
    assert list(holding.expire(NEW_SECONDS)) == []
    assert list(holding.expire(NEW_SECONDS + 0.1)) == ["new"]
    assert list(holding.expire(WAIT_SECONDS + 0.1)) == ["old"]
    assert not holding


def test_a_request_that_is_withdrawn_is_neither_served_nor_late():
    holding = AdmissionQueue()
    ticket = holding.put("gone", 0.0, new=False)
    holding.withdraw(ticket)
    assert not holding
    assert list(holding.expire(1e9)) == []
    other = holding.put("gone too", 0.0, new=False)
    holding.withdraw(other)
    holding.admit(lambda item: (_ for _ in ()).throw(AssertionError(item)))
    assert len(holding) == 0


def test_one_that_ends_while_others_are_let_in_is_safe():
    holding, served = AdmissionQueue(), []
    holding.put("a", 0.0, new=False)
    second = holding.put("b", 1.0, new=False)
    holding.put("c", 2.0, new=False)

    def fits(item):
        if item == "a":
            holding.withdraw(second)
        served.append(item)
        return True

    holding.admit(fits)
    assert served == ["a", "c"]
    assert not holding


# --- shares --------------------------------------------------------------------------------------------------


def order_of(queue, count):
    served = []
    queue.admit(lambda item: len(served) < count and (served.append(item) or True))
    return served


def test_a_caller_with_many_requests_delays_nobody():
    queue = AdmissionQueue()
    for number in range(100):
        queue.put("greedy", float(number), new=False, share=Share("a", "greedy"))
    queue.put("polite", 200.0, new=False, share=Share("a", "polite"))
    assert "polite" in order_of(queue, 2)


def test_callers_share_by_weight_and_by_work():
    queue = AdmissionQueue()
    shares = {
        "one": Share("a", "one", 1, 100),
        "three": Share("a", "three", 3, 100),
        "long": Share("a", "long", 1, 400),
    }
    for name, share in shares.items():
        for _ in range(200):
            queue.put(name, 0.0, new=False, share=share)
    served = order_of(queue, 170)
    work = {name: served.count(name) * share.work for name, share in shares.items()}
    assert abs(work["three"] - 3 * work["one"]) <= 400
    assert abs(work["long"] - work["one"]) <= 400


def test_nobody_saves_up_for_a_burst():
    queue = AdmissionQueue()
    for _ in range(50):
        queue.put("busy", 0.0, new=False, share=Share("a", "busy"))
    order_of(queue, 40)
    for _ in range(50):
        queue.put("idle", 1.0, new=False, share=Share("a", "idle"))
    assert 9 <= order_of(queue, 20).count("idle") <= 11


def test_who_asks_again_at_once_has_no_advantage():
    """A caller whose queue is empty for a moment is not taken for a new one."""
    queue, served = AdmissionQueue(), []
    for _ in range(20):
        queue.put("steady", 0.0, new=False, share=Share("a", "steady"))
    for _ in range(20):
        queue.put("eager", 0.0, new=False, share=Share("a", "eager"))
        served += order_of(queue, 1)
    assert 9 <= served.count("eager") <= 11


def test_long_prompts_that_do_not_fit_delay_nobody_else():
    """First come, first served gives up behind PASSED_OVER of them."""

    def admitted(share):
        queue, served = AdmissionQueue(), []
        for number in range(3 * PASSED_OVER):
            queue.put(f"cold {number}", 0.0, new=False, share=share("cold"))
        queue.put("warm", 1.0, new=False, share=share("warm"))
        queue.admit(lambda item: item == "warm" and (served.append(item) or True))
        return served

    assert admitted(lambda _caller: NOBODYS) == []
    assert admitted(lambda caller: Share("a", caller)) == ["warm"]


def test_what_is_looked_at_is_bounded_with_many_callers_too():
    queue, asked = AdmissionQueue(), []
    for number in range(1000):
        queue.put(number, 0.0, new=False, share=Share(str(number % 2), str(number)))
    queue.admit(lambda item: asked.append(item) is not None)
    assert len(asked) == LOOKS
    assert len(queue) == 1000


@pytest.mark.parametrize(
    "full",
    [{("a", ""): 6, ("b", ""): 2}, {(f"g{number}", ""): 1 for number in range(8)}, {("idle", "canary"): 25}],
    ids=["two groups", "eight groups of one caller", "another revision of the same group"],
)
def test_full_replicas_keep_no_request_from_others_that_are_idle(full):
    queue, served = AdmissionQueue(), []
    for (group, revision), callers in full.items():
        for caller in range(callers):
            for _ in range(PASSED_OVER):
                queue.put("full", 0.0, new=False, share=Share(group, str(caller), revision=revision))
    queue.put("roomy", 0.1, new=True, share=Share("idle", "x"))
    queue.admit(lambda item: item == "roomy" and (served.append(item) or True), 0.1)
    assert served == ["roomy"]


def served_in_turn(fair):
    """A server of one request at a time, a greedy caller with 100 times the requests of ten polite ones.

    Returns:
        Seconds that each polite request waited, at most and on average.
    """
    queue, waits, now, free_at, at = AdmissionQueue(), [], 0.0, 0.0, 0
    arrivals = [(index * 0.001, "greedy") for index in range(20_000)]
    arrivals += [(index * 1.0 + caller / 10, f"polite {caller}") for index in range(20) for caller in range(10)]
    arrivals.sort()
    while at < len(arrivals) and now < 20.0:
        now = max(free_at, arrivals[at][0]) if not queue else free_at
        while at < len(arrivals) and arrivals[at][0] <= now:
            when, caller = arrivals[at]
            share = Share("a", caller) if fair else NOBODYS
            queue.put((when, caller), when, new=False, share=share)
            at += 1
        for when, caller in order_of(queue, 1):
            free_at = now + 0.02
            if caller != "greedy":
                waits.append(now - when)
    return max(waits), sum(waits) / len(waits)


@pytest.mark.heavy
def test_a_greedy_caller_does_not_show_in_what_polite_ones_wait():
    worst, mean = served_in_turn(fair=True)
    assert worst <= 0.06  # a request under way, and those of others that came in the same moment
    assert mean <= 0.03
    assert served_in_turn(fair=False)[1] > 1.0


def test_a_group_waits_while_one_of_its_requests_does():
    queue = AdmissionQueue()
    first = queue.put(1, 0.0, new=True, share=Share("a", "x"))
    queue.put(2, 0.0, new=True, share=Share("b", "x"))
    queue.withdraw(first)
    queue.withdraw(first)
    assert (queue.waits("a"), queue.waits("b")) == (False, True)
    queue.admit(lambda _item: False)
    assert queue.waits("b")
    queue.admit(lambda _item: True)
    assert not queue.waits("b")


# --- classes -------------------------------------------------------------------------------------------------

HIGH, NORMAL, LOW = range(3)


def test_a_higher_class_goes_first_and_callers_of_one_class_share():
    queue = AdmissionQueue()
    for number in range(20):
        for rank, name in ((LOW, "low"), (NORMAL, "normal"), (HIGH, "high"), (HIGH, "high too")):
            queue.put(name, float(number) / 100, new=False, share=Share("a", name, rank=rank))
    served = order_of(queue, 60)
    assert sorted(served[:4]) == ["high", "high", "high too", "high too"]
    assert set(served[:40]) == {"high", "high too"}
    assert set(served[40:]) == {"normal"}


def served_at(queue, now, count):
    served = []
    queue.admit(lambda item: len(served) < count and (served.append(item) or True), now)
    return served


def test_nobody_in_a_lower_class_starves_and_many_of_them_take_a_quarter_at_most():
    queue = AdmissionQueue()
    for _ in range(2000):
        queue.put("high", 0.0, new=False, share=Share("a", "high", rank=HIGH))
    for number in range(100):
        for _ in range(20):
            queue.put(f"low {number}", 0.0, new=False, share=Share("a", f"low {number}", rank=LOW))
    assert set(served_at(queue, AGE_SECONDS / 2, 100)) == {"high"}
    served = served_at(queue, AGE_SECONDS + 0.1, 400)
    assert served.count("high") == 300
    assert len(set(served)) == 101  # each of the others once


def test_who_was_served_grows_old_anew():
    queue = AdmissionQueue()
    for _ in range(100):
        queue.put("high", 0.0, new=False, share=Share("a", "high", rank=HIGH))
        queue.put("low", 0.0, new=False, share=Share("a", "low", rank=LOW))
    assert [served_at(queue, now, 8).count("low") for now in (1.0, 1.5, 1.9, 2.0, 2.5, 3.0)] == [1, 0, 0, 1, 0, 1]


def test_without_a_higher_class_age_counts_nothing():
    """All callers are of one class unless somebody says something else; shares are by work then."""

    def served(rank):
        queue, found = AdmissionQueue(), []
        for _ in range(100):
            queue.put("long", 0.0, new=False, share=Share("a", "long", 1, 10_000, rank))
            queue.put("short", 0.0, new=False, share=Share("a", "short", 1, 10, rank))
        for now in range(1, 11):
            found += served_at(queue, float(now), 5)
        return found

    assert served(NORMAL) == served(HIGH)
    assert served(NORMAL).count("long") == 1


def test_a_full_group_of_high_callers_keeps_no_other_group_from_its_own_room():
    queue, served = AdmissionQueue(), []
    for number in range(100):
        queue.put("full", 0.0, new=False, share=Share("a", str(number), rank=HIGH))
    queue.put("roomy", 1.0, new=False, share=Share("b", "x", rank=LOW))
    queue.admit(lambda item: item == "roomy" and (served.append(item) or True))
    assert served == ["roomy"]


def test_who_was_long_in_a_lower_class_has_saved_nothing_up():
    queue = AdmissionQueue()
    queue.put("old", 0.0, new=False, share=Share("a", "old", rank=LOW))
    for _ in range(1000):
        queue.put("high", 0.0, new=False, share=Share("a", "high", 1, 1000, HIGH))
    served_at(queue, 0.1, 1000)
    for _ in range(20):
        queue.put("old", 0.2, new=False, share=Share("a", "old", rank=LOW))
        queue.put("young", 0.2, new=False, share=Share("a", "young", rank=LOW))
    assert 9 <= served_at(queue, 0.3, 20).count("young") <= 11


# --- long cold prompts ---------------------------------------------------------------------------------------

RATE = 10_000.0
"""Tokens that the engine computes in a second."""
COLD, WARM = 50_000.0, 500.0
"""Tokens that a prompt makes it compute."""
STEP = 0.01
"""Seconds."""


def first_tokens(*, fair: bool = True, cold: bool = True, together: int = 1, most: int = 1000) -> float:
    """Return the 99th percentile of the times to the first token of B's warm requests, in virtual seconds.

    B sends a warm request each half second for 200 s, and A ten prompts that are not cached in each ten seconds of the
    first forty: five times what the engine computes meanwhile.

    Args:
        fair: whether the queue tells callers apart.
        cold: whether A sends anything.
        together: prompts that the engine computes at a time, in equal parts.
        most: requests of A at a time, as a limit allows; others are refused.
    """
    left = [(index * 0.5, "B", WARM) for index in range(400)]
    if cold:
        left += [(burst * 10.0 + index * 1e-3, "A", COLD) for burst in range(4) for index in range(10)]
    left.sort(reverse=True)
    queue, running, waits, now, of_a = AdmissionQueue(), [], [], 0.0, 0

    def begin(item):
        running.append([item[2], item])
        return True

    while left or queue or running:
        while left and left[-1][0] <= now:
            at, caller, work = left.pop()
            of_a += caller == "A"
            if caller == "A" and of_a > most:
                of_a -= 1
                continue
            queue.put((at, caller, work), at, new=False, share=Share("a", caller if fair else "", 1, work))
        queue.admit(lambda item: len(running) < together and begin(item))
        now += STEP
        done = RATE * STEP / max(1, len(running))
        for each in list(running):
            each[0] -= done
            if each[0] <= 0:
                running.remove(each)
                of_a -= each[1][1] == "A"
                if each[1][1] == "B":
                    waits.append(now - each[1][0])
    waits.sort()
    return waits[len(waits) * 99 // 100]


@pytest.mark.heavy
def test_cold_prompts_of_one_caller_delay_warm_requests_of_another_by_one_prompt_at_most():
    """What the engine has begun is not interrupted; what waits for room is not in the way."""
    alone, fair, first_come = first_tokens(cold=False), first_tokens(), first_tokens(fair=False)
    assert alone <= WARM / RATE + 2 * STEP
    assert fair <= COLD / RATE + 10 * WARM / RATE + alone
    assert first_come > 20 * fair


@pytest.mark.heavy
def test_with_a_limit_of_requests_at_a_time_they_delay_them_hardly():
    """An engine that computes several prompts at a time has room beside those that a caller may have."""
    alone, fair = first_tokens(cold=False, together=8), first_tokens(together=8)
    limited, first_come = first_tokens(together=8, most=2), first_tokens(fair=False, together=8)
    assert limited <= 3 * alone + 2 * STEP
    assert fair <= 8 * COLD / RATE + 10 * WARM / RATE
    assert first_come > 3 * fair
