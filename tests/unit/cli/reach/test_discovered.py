import json

import pytest

from promptgroup_cli.base.errors import ReachError
from promptgroup_cli.reach.discovered import ask_all, read_sample

TEXT = "You are the support assistant of Example Ltd. " * 60


def line(system, **fields):
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "hi"}]
    return json.dumps({"model": "llama", "messages": messages, **fields})


def test_requests_with_one_beginning_are_one_prompt_of_what_they_share(tmp_path):
    log = tmp_path / "requests.jsonl"
    log.write_text("\n".join([line(TEXT + "A b c"), line(TEXT + "A b d"), "no JSON", line("short")]))
    shared, alone = sorted(read_sample(str(log), None).values(), key=lambda each: -each.requests)
    assert (shared.system, shared.requests, shared.varies) == (TEXT + "A b ", 2, True)
    assert (alone.system, alone.requests, alone.varies) == ("short", 1, False)


def test_tools_are_declared_only_if_all_requests_have_them(tmp_path):
    tool = {"type": "function", "function": {"name": "look"}}
    log = tmp_path / "requests.jsonl"
    log.write_text("\n".join([line(TEXT, tools=[tool]), line(TEXT, tools=[tool])]))
    [found] = read_sample(str(log), None).values()
    assert json.loads(found.tools) == [tool]
    log.write_text("\n".join([line(TEXT, tools=[tool]), line(TEXT)]))
    [found] = read_sample(str(log), None).values()
    assert found.tools == ""


def test_without_an_answer_there_is_an_error():
    def silent(path, body):
        raise ReachError("router r1 does not answer")

    with pytest.raises(ReachError, match="router r1"):
        ask_all({"r1": silent})


def test_a_time_on_top_is_no_part_of_what_requests_share(tmp_path):
    log = tmp_path / "requests.jsonl"
    log.write_text("\n".join(line(f"2026-11-24 12:00:{second}\n" + TEXT) for second in range(10, 14)))
    [found] = read_sample(str(log), None).values()
    assert (found.system, found.requests, found.moved) == (TEXT, 4, True)
    log.write_text("\n".join([line("Rules of 2026-11-24.\n" + TEXT)] * 2))
    [found] = read_sample(str(log), None).values()
    assert (found.system, found.moved) == ("Rules of 2026-11-24.\n" + TEXT, False)
