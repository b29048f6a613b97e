from promptgroup_cli.reach.discovered import SamplePrompt
from promptgroup_cli.render.discover_output import manifest, note, table
from support.yamlfiles import document

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
    made = document(manifest("support", "llama", SamplePrompt("Be brief.", '[{"type":"function"}]')))
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
