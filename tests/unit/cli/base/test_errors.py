from promptgroup_cli.base.errors import ExitStatus, InputError, ReachError, RefusedError, exit_statuses


def test_each_error_has_its_exit_status():
    statuses = [each("x").status for each in (RefusedError, InputError, ReachError)]
    assert statuses == [ExitStatus.NEGATIVE, ExitStatus.USAGE, ExitStatus.UNREACHABLE] == [1, 2, 3]


def test_the_end_of_a_help():
    shown = exit_statuses("fine", "not fine", "  promptgroup x\n")
    assert shown.startswith("examples:\n  promptgroup x\n\nexit status:\n  0  fine\n  1  not fine\n  2  ")
    assert "  1  " not in exit_statuses("fine", "")
