from promptgroup_router.base.steps import at_once


def test_all_steps_run_and_the_result_is_that_of_the_last():
    done = []

    def steps():
        for number in range(3):
            done.append(number)
            yield
        return sum(done)

    assert at_once(steps()) == 3
    assert done == [0, 1, 2]
