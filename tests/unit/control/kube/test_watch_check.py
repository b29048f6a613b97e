from promptgroup_operator.kube.watch_check import Gap, gaps, silent

A, B, C = ("x", "a"), ("x", "b"), ("y", "c")


def test_what_was_told_as_it_stands_is_no_gap():
    assert gaps("Pod", {A: "1", B: "2"}, {A: "1", B: "2"}) == frozenset()


def test_a_version_an_object_and_a_deletion_can_be_missed():
    assert gaps("Pod", {A: "1", B: "2"}, {A: "3", C: "4"}) == {
        Gap("Pod", A, "1"),
        Gap("Pod", B, "2"),
        Gap("Pod", C, ""),
    }


def test_an_event_on_its_way_is_no_silence():
    before = gaps("Pod", {A: "1"}, {A: "2"})
    assert silent(before, gaps("Pod", {A: "2"}, {A: "2"})) == ()


def test_an_object_that_changes_all_the_time_is_no_silence():
    assert silent(gaps("Pod", {A: "1"}, {A: "2"}), gaps("Pod", {A: "3"}, {A: "4"})) == ()


def test_an_object_told_of_no_further_until_the_next_list_was_missed():
    before = gaps("Pod", {A: "1"}, {A: "2"}) | gaps("PromptGroup", {B: "1"}, {B: "2"})
    assert silent(before, gaps("Pod", {A: "1"}, {A: "9"}) | gaps("PromptGroup", {B: "2"}, {B: "2"})) == ("Pod",)


def test_a_watch_that_never_told_of_an_object_has_missed_it():
    assert silent(gaps("Pod", {}, {A: "1"}), gaps("Pod", {}, {A: "1"})) == ("Pod",)
