"""The series that a request adds to."""

from promptgroup_router.base.metrics import Metrics

GROUP, REVISION = "chat/support", "0123abcd"


def found(metrics, revision=REVISION, *, turn="first", how="content", streamed=True):
    return metrics.of_requests(GROUP, revision, turn=turn, how=how, streamed=streamed)


def test_requests_of_one_kind_have_the_same_series():
    metrics = Metrics()
    assert found(metrics) is found(metrics)
    others = [found(metrics, turn="later"), found(metrics, how="name"), found(metrics, streamed=False)]
    assert len({id(found(metrics)), *map(id, others)}) == 4
    assert all(each.first_byte is found(metrics).first_byte for each in others)


def test_labels_say_the_kind_of_the_requests():
    metrics = Metrics()
    found(metrics, turn="later", streamed=False).ok.add()
    found(metrics, how="name").failed.add()
    assert metrics.revision_requests.values == {
        (GROUP, REVISION, "later", "content", "false", "ok"): 1,
        (GROUP, REVISION, "first", "name", "true", "failed"): 1,
    }


def test_series_of_which_nothing_came_are_not_told():
    metrics = Metrics()
    before = metrics.text()
    found(metrics)
    assert metrics.text() == before


def test_answers_are_counted_by_status_over_all_kinds():
    metrics = Metrics()
    for kind, status in ((found(metrics), 200), (found(metrics, turn="later"), 200), (found(metrics), 503)):
        kind.answered(status)
    assert metrics.requests.values == {(GROUP, "200"): 2, (GROUP, "503"): 1}


def test_tokens_of_a_slot_are_counted_over_all_kinds():
    metrics = Metrics()
    for kind in (found(metrics), found(metrics, turn="later")):
        slot = kind.slot(f"{GROUP}/{REVISION}/3")
        slot.prompt_tokens.add(100)
        slot.cached_tokens.add(90)
    assert metrics.slot_prompt_tokens.values == {(GROUP, REVISION, "3", "0"): 200}
    assert metrics.slot_cached_tokens.values == {(GROUP, REVISION, "3", "0"): 180}


def test_what_comes_after_series_were_dropped_is_told_again():
    metrics = Metrics()
    found(metrics).prompt_tokens.add(5)
    metrics.keep(("group",), {("another",)})
    assert metrics.prompt_tokens.values == {}
    found(metrics).prompt_tokens.add(7)
    assert metrics.prompt_tokens.values == {(GROUP,): 7}


def add_to_each(series):
    """Add to each series of a request, as one that ends does."""
    series.answered(200)
    for each in (series.prompt_tokens, series.cached_tokens, series.revision_prompt_tokens, series.answer_tokens):
        each.add()
    for each in (
        series.saved_seconds,
        series.ok,
        series.failed,
        series.revision_own_tokens,
        series.revision_shared_tokens,
        series.slot(f"{GROUP}/{REVISION}/3").prompt_tokens,
    ):
        each.add()
    for each in (series.first_byte, series.duration, series.revision_first_token, series.revision_cached):
        each.record(1.0)


def drop(metrics, *wanted):
    """Drop what is of other groups and revisions, as the router does."""
    metrics.keep(("group",), {*wanted, ("-",)})
    metrics.keep(("group", "revision"), {*wanted})


def of_group(metrics):
    return [line for line in metrics.text().splitlines() if f'group="{GROUP}"' in line]


def test_a_request_in_flight_tells_nothing_of_what_was_dropped():
    metrics = Metrics()
    for began in ("with what it added", "with nothing added"):
        series = found(metrics)
        if began == "with what it added":
            add_to_each(series)
        else:
            series.slot(f"{GROUP}/{REVISION}/3")
            series.answered(200)
        drop(metrics)
        assert of_group(metrics) == []
        add_to_each(series)
        assert of_group(metrics) == [], began


def test_a_revision_that_is_dropped_leaves_its_group():
    metrics = Metrics()
    series = found(metrics)
    add_to_each(series)
    drop(metrics, (GROUP,))
    add_to_each(series)
    assert metrics.prompt_tokens.values == {(GROUP,): 2}
    assert metrics.requests.values == {(GROUP, "200"): 2}
    assert not any(f'revision="{REVISION}"' in line for line in of_group(metrics))


def test_what_comes_back_counts_beside_requests_that_began_before():
    metrics = Metrics()
    before = found(metrics)
    add_to_each(before)
    drop(metrics)
    again = found(metrics)
    alone = Metrics()
    for each in (again, found(alone)):
        add_to_each(each)
    add_to_each(before)
    assert metrics.text() == alone.text()
    before.answered(503)  # a status that is new to it is looked up, and is not lost
    again.answered(503)
    assert metrics.requests.values == {(GROUP, "200"): 1, (GROUP, "503"): 2}


def test_a_request_in_flight_goes_on_where_others_are_dropped():
    metrics, alone = Metrics(), Metrics()
    for each in (metrics, alone):
        series = found(each)
        series.answered(200)
        if each is metrics:
            drop(metrics, (GROUP,), (GROUP, REVISION))
        add_to_each(series)
        add_to_each(found(each))
    assert metrics.text() == alone.text()


def test_what_is_kept_of_series_ends_with_them():
    metrics = Metrics()
    sizes = []
    for prompt in range(100):
        revision = f"{prompt:08x}"
        series = found(metrics, revision)
        for status in range(1000):
            series.answered(status)
        drop(metrics, (GROUP,), (GROUP, revision))
        found(metrics, revision)
        sizes.append((len(metrics._of_requests), *(len(each._series) for each in metrics.all)))
    assert len(set(sizes[1:])) == 1
    assert len(metrics.requests.values) == 1000  # as many as there are statuses


def test_series_that_are_kept_go_on():
    metrics = Metrics()
    found(metrics).prompt_tokens.add(5)
    metrics.keep(("group",), {(GROUP,)})
    found(metrics).prompt_tokens.add(7)
    assert metrics.prompt_tokens.values == {(GROUP,): 12}


def test_each_rank_of_a_slots_engine_has_a_series():
    metrics = Metrics()
    found(metrics).slot(f"{GROUP}/{REVISION}/3.1").cached_tokens.add(7)
    assert metrics.slot_cached_tokens.values == {(GROUP, REVISION, "3", "1"): 7}
