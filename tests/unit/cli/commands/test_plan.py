"""The command `plan`: its flags, its files, its errors. tests/golden/plan has what it prints."""

import argparse
import io
from pathlib import Path

import pytest
import yaml

from promptgroup_cli.base.errors import CommandError, RefusedError
from promptgroup_cli.commands import plan
from promptgroup_cli.commands.plan import add
from promptgroup_cli.rehearsal import simulate
from support import builders


def parsed(*words):
    parser = argparse.ArgumentParser()
    add(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "a day", "86401", "²"])
def test_a_start_of_no_length_is_refused(value, capsys):
    with pytest.raises(SystemExit):
        parsed("group.yaml", f"--warm-seconds={value}")
    assert "is not a whole number from 1 to 86400" in capsys.readouterr().err


def test_no_revision_is_there_and_the_analysis_passes_unless_it_is_said():
    found = parsed("group.yaml")
    assert (found.old, found.judge, found.warm_seconds, found.namespace) == (None, "pass", 60, "default")


GROUP = {
    "apiVersion": "promptgroup.dev/v1alpha1",
    "kind": "PromptGroup",
    "metadata": {"name": "support"},
    "spec": {"model": "llama", "prompt": {"system": builders.TEXT}, "engine": {"image": "vllm"}},
}


def write(tmp_path, name="file.yaml", metadata=None, **spec):
    path = tmp_path / name
    path.write_text(yaml.safe_dump(GROUP | {"metadata": metadata or GROUP["metadata"], "spec": GROUP["spec"] | spec}))
    return str(path)


def run(*arguments):
    return list(plan.lines(parsed(*arguments), builders.NOW))


def refused(*arguments):
    with pytest.raises(CommandError) as error:
        run(*arguments)
    return str(error.value)


def test_standard_input(tmp_path, monkeypatch):
    path = write(tmp_path)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(Path(path).read_bytes())))
    assert run("-") == run(path)


def test_the_namespace_of_what_names_none(tmp_path):
    path = write(tmp_path)
    assert run(path)[0].startswith("after     default/support")
    assert run(path, "-n", "chat")[0].startswith("after     chat/support")


def test_the_start_takes_as_long_as_it_is_said(tmp_path):
    assert run(write(tmp_path), "--warm-seconds", "90")[-1].startswith("done after 1m30s")


def test_files_that_cannot_be_read(tmp_path):
    assert refused(str(tmp_path / "none.yaml")).endswith(f"none.yaml: there is no such file in {tmp_path}")
    assert "it is a folder: name a file in it" in refused(str(tmp_path))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    assert refused(str(tmp_path / "binary")).endswith("binary: not text in UTF-8, at byte 0")


def test_an_error_names_the_file_that_it_is_in(tmp_path):
    good, bad = write(tmp_path), write(tmp_path, "bad.yaml", replicas=4000)
    for arguments in ([bad], [good, "--from", bad], [bad, "--from", good]):
        assert "bad.yaml: spec.replicas: " in refused(*arguments)


def test_another_group_is_no_change_of_this_one(tmp_path):
    other = write(tmp_path, "other.yaml", metadata={"name": "other"})
    assert "it has PromptGroup default/support, but --from has default/other" in refused(
        write(tmp_path), "--from", other
    )


def test_another_model_is_no_change_either(tmp_path):
    assert "spec.model cannot be changed" in refused(
        write(tmp_path), "--from", write(tmp_path, "b.yaml", model="another")
    )


def test_a_verdict_where_nothing_is_judged(tmp_path):
    path, steps = write(tmp_path), write(tmp_path, "steps.yaml", rollout={"steps": [{"weight": 5}]})
    for arguments in ([path, "--from", path], [steps]):
        assert "--judge fail needs --from and spec.rollout.steps" in refused(*arguments, "--judge", "fail")
    assert run(steps, "--from", path, "--judge", "fail")


def test_unknown_fields_are_refused_behind_the_plan_that_they_are_left_out_of(tmp_path):
    shown = []
    with pytest.raises(RefusedError, match=r"file\.yaml: spec\.replica is not a field"):
        shown.extend(plan.lines(parsed(write(tmp_path, replica=3)), builders.NOW))
    assert any(line.startswith("+0s") for line in shown)


def test_unknown_fields_of_what_is_applied_already_are_refused_by_nobody(tmp_path):
    assert run(write(tmp_path), "--from", write(tmp_path, "old.yaml", replica=3))


def test_one_that_does_not_settle_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(simulate, "MOMENTS", 1)
    assert "the plan never ends" in refused(write(tmp_path))


def test_rows_come_before_the_end_is_known(tmp_path, monkeypatch):
    """A long plan is read while it is made."""
    monkeypatch.setattr(simulate, "MOMENTS", 1)
    lines = plan.lines(parsed(write(tmp_path)), builders.NOW)
    assert any(line.startswith("+0s") for line in lines)
