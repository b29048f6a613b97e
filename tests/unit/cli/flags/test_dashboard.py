import pytest


def test_help_says_what_it_does(command):
    code, out, _ = command("dashboard", "--help", exits=True)
    assert code == 0
    assert "changes nothing" in " ".join(out.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--port", "70000"), "'70000' is not a port"),
        (("--port", "x"), "'x' is not a port"),
        (("--interval", "0.1"), "'0.1' is not a number of seconds from 0.5"),
        (("--interval", "nan"), "'nan' is not a number of seconds"),
    ],
)
def test_a_wrong_value_is_one_line(command, words, said):
    code, _, err = command("dashboard", *words, exits=True)
    assert code == 2
    assert said in err
