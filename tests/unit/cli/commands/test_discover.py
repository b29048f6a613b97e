import argparse
import json

import pytest
import yaml

from promptgroup_cli.commands.discover import add, manifest, note, table
from promptgroup_cli.reach.discovered import SamplePrompt
from promptgroup_operator.api.prompt_group import PromptGroupSpec
from promptgroup_router.apis.request import ApiKind, parse
from promptgroup_router.prefixes.leading import leading_of
from promptgroup_router.undeclared.unmatched import UnmatchedPrefixes, document, sampled
from support.rawobjects import router, serving
from support.scriptedkube import Answer
from support.yamlfiles import document as yaml_document


def parsed(*words):
    parser = argparse.ArgumentParser()
    add(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize("limit", ["0", "x", "-1", "257"])
def test_a_number_of_prefixes_that_is_none(limit, capsys):
    with pytest.raises(SystemExit):
        parsed("--limit", limit)
    assert "a whole number from 1 to 256" in capsys.readouterr().err


def test_twenty_are_listed_unless_another_number_is_asked_for():
    assert (parsed().limit, parsed("--limit", "256").limit) == (20, 256)


RULES = "You are the support assistant of Example Ltd. " + "Answer briefly and politely. " * 80
OTHER = "You translate. " * 200


def body(system, text="hi"):
    messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
    return json.dumps({"model": "llama", "messages": messages})


def saw(*systems, keeps=0):
    """What a router tells that saw these system texts, and keeps so many bytes of each."""
    sketch = UnmatchedPrefixes()
    for number, system in enumerate(systems):
        leading, text = leading_of(parse(ApiKind.CHAT, body(system).encode()))
        length = leading.length // 4
        sample = sampled(system, "", keeps) if keeps else None
        figures = {"tokens": length, "session": number, "text": text, "now": 0.0}
        sketch.add("llama", leading.hash, leading.length, sample=sample, volatile=leading.volatile, **figures)
    return document(sketch, 60.0)


def routers(kube, **told):
    """Routers that answer so; None for one that does not."""
    serving(kube, *(router(name) for name in told), metrics="", table={})
    listed = kube.serve

    def serve(method, path):
        for name, said in told.items():
            if f"/{name}:" in path and path.endswith("/unmatched"):
                return Answer(cut=True) if said is None else Answer(200, json.dumps(said).encode())
        return listed(method, path)

    kube.serve = serve


def test_what_all_routers_saw_is_listed_heaviest_first(kube, command):
    routers(kube, r1=saw(RULES, RULES, OTHER), r2=saw(OTHER, OTHER), r3=None)
    code, out, _ = command("discover", "-o", "json")
    told = json.loads(out)
    assert code == 0
    assert [(each["requests"], each["sessions"], each["texts"]) for each in told["unmatched"]] == [(3, 3, 1), (2, 2, 1)]
    assert told["routersWithoutAnswer"] == ["r3"]
    code, out, _ = command("discover", "--limit", "1")
    assert out.count("llama") == 1
    assert "Router r3 did not answer." in out
    assert RULES[:30] not in out


def test_forty_requests_with_forty_times_on_top_are_one_line_that_says_so(kube, command, tmp_path):
    timed = [f"2026-11-24 12:{minute}:07\n{RULES}" for minute in range(10, 50)]
    routers(kube, r1=saw(*timed))
    lines = command("discover")[1].splitlines()
    assert lines[1].endswith("a date with a time, or seconds since 1970 at byte 0 differs")
    assert lines[2] == ""
    log = tmp_path / "requests.jsonl"
    log.write_text("\n".join(map(body, timed)))
    code, out, _ = command("discover", "--sample", str(log), "--write", "-")
    assert code == 0
    assert yaml.safe_load(out)["spec"]["prompt"]["system"] == RULES
    assert "once their clients move it" in out


def test_routers_keep_no_text_of_which_a_group_could_be_made_where_the_top_varies(kube, command):
    routers(kube, r1=saw("12:00:01 " + RULES, "12:00:02 " + RULES, keeps=9000))
    code, _, err = command("discover", "--write", "-")
    assert code == 2
    assert "give your own requests with --sample" in err


def test_where_every_request_matched_there_is_nothing_to_discover(kube, command):
    routers(kube, r1=saw())
    assert command("discover") == (1, "Every request matched a group.\n", "")


def test_a_group_is_written_with_the_text_of_the_users_own_requests(kube, command, tmp_path):
    today = [RULES + f"Today is the {day}th of May." for day in range(10, 14)]
    routers(kube, r1=saw(*today, OTHER))
    log = tmp_path / "requests.jsonl"
    log.write_text("\n".join(map(body, today)))
    code, out, _ = command("discover", "--sample", str(log))
    assert code == 0
    assert "4 requests" in out
    assert "the text changes behind its beginning" in out
    target = tmp_path / "group.yaml"
    assert command("discover", "--sample", str(log), "--name", "support", "--write", str(target))[0] == 0
    made = yaml.safe_load(target.read_text())
    assert PromptGroupSpec.model_validate(made["spec"]).prompt.system == RULES + "Today is the 1"
    assert (made["metadata"]["name"], made["spec"]["model"]) == ("support", "llama")
    assert "cut it where a sentence is the same for all" in target.read_text()
    code, _, err = command("discover", "--sample", str(log), "--write", str(target))
    assert (code, f"--write {target}: it exists: name another file" in err) == (2, True)
    code, _, err = command("discover", "--sample", str(log), "--write", str(tmp_path / "none" / "x.yaml"))
    assert (code, f"there is no folder {tmp_path}/none: make it" in err) == (2, True)


@pytest.mark.parametrize("name", ["Foo_Bar", "-a", "a" * 51, ""])
def test_a_name_that_the_api_server_would_refuse_is_a_wrong_flag(command, name):
    code, out, err = command("discover", f"--name={name}", "--write", "-", exits=True)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "is not a name of a PromptGroup: write at most 50 lower-case letters" in err


def test_a_group_is_written_with_the_text_that_routers_keep(kube, command):
    today = [RULES + f"Today is the {day}th of May." for day in range(10, 12)]
    routers(kube, r1=saw(today[0], OTHER, keeps=9000), r2=saw(today[1], keeps=9000))
    code, out, _ = command("discover", "--write", "-")
    assert code == 0
    assert PromptGroupSpec.model_validate(yaml.safe_load(out)["spec"]).prompt.system == RULES + "Today is the 1"
    assert "cut it where a sentence is the same for all" in out
    listed = json.loads(command("discover", "-o", "json")[1])["unmatched"]
    assert RULES[:30] not in json.dumps(listed) + command("discover")[1]  # it is text of somebody's prompt
    code, out, _ = command("discover", "--write", "-", "--hash", listed[1]["hash"])
    assert yaml.safe_load(out)["spec"]["prompt"]["system"] == OTHER
    assert "cut it" not in out


def test_a_text_that_routers_have_cut_is_said_to_be_a_part(kube, command):
    routers(kube, r1=saw(RULES, keeps=500))
    out = command("discover", "--write", "-")[1]
    assert yaml.safe_load(out)["spec"]["prompt"]["system"] == RULES[:500]
    assert "read its end" in out


WRONG = {
    "without a sample": ([], ["--write", "-"], "give your own requests with --sample"),
    "of a prompt that nobody sends": (
        [body("somebody " * 300)],
        ["--write", "-"],
        "there is no text of a prefix of the list",
    ),
    "of a hash that nobody knows": ([body(RULES)], ["--write", "-", "--hash", "0" * 16], "no router has such a prefix"),
    "of requests without a system prompt": ([body("")], ["--write", "-"], "no request of it has a system prompt"),
}


@pytest.mark.parametrize("case", WRONG)
def test_nothing_is_written(case, kube, command, tmp_path):
    sample, words, message = WRONG[case]
    routers(kube, r1=saw(RULES, OTHER))
    log = tmp_path / "requests.jsonl"
    log.write_text("\n".join(sample))
    given = ["--sample", str(log)] if sample else []
    code, out, err = command("discover", *given, *words)
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.parametrize(
    "said",
    [{}, [], {"unmatched": [{"model": "m"}]}, {"unmatched": [saw(RULES)["unmatched"][0] | {"tokensPerSecond": "x"}]},
     {"unmatched": [saw(RULES)["unmatched"][0] | {"bitmaps": "00"}]},
     {"unmatched": [saw(RULES)["unmatched"][0] | {"requests": -1}]},
     {"unmatched": [saw(RULES)["unmatched"][0] | {"sample": {"system": 3, "tools": "", "whole": True}}]},
     {"unmatched": [saw(RULES)["unmatched"][0] | {"sample": {"system": "x", "tools": "{", "whole": True}}]},
     {"unmatched": [saw(RULES)["unmatched"][0] | {"sample": {"system": "x" * 70_000, "tools": "", "whole": True}}]},
     {"unmatched": [saw(RULES)["unmatched"][0] | {"sample": None}]},
     {"unmatched": [saw(RULES)["unmatched"][0] | {"near": {"group": "chat/support"}}]},
     {"unmatched": [saw(RULES)["unmatched"][0] | {"near": {"group": "a\x1b[2J", "atByte": 1}}]},
     {"unmatched": [saw(RULES)["unmatched"][0] | {"varies": {"rule": "date", "atByte": -1}}]},
     {"unmatched": [saw(RULES)["unmatched"][0] | {"prefillTokensPerSecond": "much"}]}],
)  # fmt: skip
def test_a_router_that_answers_something_else_is_named(kube, command, said):
    routers(kube, r1=said)
    code, _, err = command("discover")
    assert code == 3
    assert "router r1 does not answer as a router of this version does" in err


ENTRY = {
    "model": "llama", "hash": "00000000000000ab", "prefixTokens": 2000.0, "requestsPerSecond": 1.5,
    "tokensPerSecond": 3000.0, "sessions": 12.0, "texts": 1.0,
}  # fmt: skip


def test_a_prefix_has_a_line_with_its_share_of_the_tokens():
    shown = table([ENTRY], 4000.0, None, ())
    assert shown.splitlines()[1].split() == [
        "00000000000000ab",
        "llama",
        "2000",
        "1.50",
        "3000",
        "75%",
        "-",
        "12",
        "1",
        "-",
    ]
    assert "IN SAMPLE" not in shown
    assert "changes behind" not in shown


def test_what_is_more_than_can_be_counted_and_varies_is_said():
    shown = table(
        [ENTRY | {"sessions": 1400.0, "texts": 1400.0}], 3000.0, {ENTRY["hash"]: SamplePrompt("x", "")}, ["r2"]
    )
    assert shown.splitlines()[1].split()[-5:] == [">1000", ">1000", "1", "requests", "-"]
    assert "changes behind its beginning" in shown
    assert "Router r2 did not answer." in shown


def test_a_group_has_the_tools_that_its_requests_have():
    made = yaml_document(manifest("support", "llama", SamplePrompt("Be brief.", '[{"type":"function"}]')))
    assert made["spec"]["prompt"] == {"system": "Be brief.", "tools": [{"type": "function"}]}
    assert "differ" not in manifest("support", "llama", SamplePrompt("Be brief.", ""))


def test_a_prefix_says_what_a_group_saves_and_how_it_varies():
    near = {"group": "chat/support", "atByte": 1024.0}
    varies = {"rule": "timestamp", "atByte": 0.0}
    shown = table([ENTRY | {"prefillTokensPerSecond": 6000.0, "near": near, "varies": varies}], 4000.0, None, ())
    assert shown.splitlines()[1].split()[6] == "0.50"
    said = "drift of chat/support at byte 1024; a date with a time, or seconds since 1970 at byte 0 differs"
    assert shown.splitlines()[1].endswith(said)
    assert "until their clients change" in shown


def test_a_rule_of_a_newer_router_is_named_by_its_id():
    assert note(ENTRY | {"varies": {"rule": "mood", "atByte": 3.0}}) == "mood at byte 3 differs"


def test_a_group_of_a_text_behind_a_time_says_that_clients_must_move_it():
    assert "once their clients move it behind" in manifest(
        "support", "llama", SamplePrompt("Be brief.", "", moved=True)
    )
    assert "once their clients move it" not in manifest("support", "llama", SamplePrompt("Be brief.", ""))


def hosted(kube, *groups, **told):
    """Routers that answer so, in a namespace with these groups."""
    routers(kube, **told)
    before = kube.serve

    def serve(method, path):
        if "/promptgroups" in path:
            return Answer(200, json.dumps({"metadata": {"resourceVersion": "1"}, "items": list(groups)}).encode())
        return before(method, path)

    kube.serve = serve


POOL = {"metadata": {"name": "pool", "namespace": "chat"}, "spec": {"model": "llama", "engine": {"image": "x"}}}


def test_where_a_host_exists_a_guest_is_proposed(kube, command):
    hosted(kube, POOL, r1=saw(RULES, RULES, keeps=9000))
    made = yaml.safe_load(command("discover", "--write", "-")[1])
    assert made["spec"]["engineFrom"] == {"promptGroup": "pool"}
    assert set(made["spec"]) == {"engineFrom", "prompt"}
    PromptGroupSpec.model_validate(made["spec"])
    hosted(kube, r1=saw(RULES, keeps=9000))
    assert "engine" in yaml.safe_load(command("discover", "--write", "-")[1])["spec"]
    assert yaml.safe_load(command("discover", "--write", "-", "--host", "other")[1])["spec"]["engineFrom"] == {
        "promptGroup": "other"
    }


def test_all_prompts_are_written_with_names_of_their_own(kube, command):
    hosted(kube, POOL, r1=saw(RULES, OTHER, keeps=9000))
    made = list(yaml.safe_load_all(command("discover", "--all", "--name", "prompt", "--write", "-")[1]))
    assert sorted(each["spec"]["prompt"]["system"] for each in made) == sorted((RULES, OTHER))
    assert len({each["metadata"]["name"] for each in made}) == 2
    assert all(each["metadata"]["name"].startswith("prompt-") for each in made)
