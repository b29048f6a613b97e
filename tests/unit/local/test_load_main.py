import sys

import pytest
import uvloop

from promptgroup_local.engine.flags import Knobs, parse
from promptgroup_local.engine.server import serving
from promptgroup_local.load import __main__ as program


def test_it_drives_sessions_and_sums_them_up() -> None:
    async def main() -> None:
        async with serving(parse(["m", "--host=127.0.0.1", "--port=0"]), Knobs(time_scale=0.0)) as url:
            line = ["--url", url, "--metrics", url, "--model=m", "--sessions=3", "--task=code", "--seed=4"]
            summary = await program._run(program._parser().parse_args(line))
        assert (summary.name, summary.failures) == ("seed 4", 0)
        assert summary.requests >= 3
        assert summary.of_possible == pytest.approx(1, abs=0.02)

    uvloop.run(main())


def test_engines_that_do_not_answer_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = "http://127.0.0.1:1"
    monkeypatch.setattr(sys, "argv", ["load", "--url", nowhere, "--metrics", nowhere])
    assert program.main() == 2
    assert capsys.readouterr().err.startswith("error: no metrics from the engines: ClientConnectorError")


@pytest.mark.parametrize("flag", ["--sessions", "--concurrency"])
def test_a_count_that_is_none_is_refused(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        program._parser().parse_args(["--url=u", "--metrics=u", flag, "0"])
    assert f"{flag}: '0' is no whole number from 1" in capsys.readouterr().err
