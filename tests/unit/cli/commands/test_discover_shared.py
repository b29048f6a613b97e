"""From requests at a router's port, by its index of prefixes, to what `promptgroup discover` prints."""

import asyncio
import json

import yaml

from promptgroup_operator.api.prompt_group import PromptGroupSpec
from support.fakeengine import engines
from support.tables import SYSTEM
from support.wire import ask, chat, post, routing, run, table_of

DOCUMENT = "".join(f"Clause {number} of the contract that everybody asks about. " for number in range(300))
QUESTIONS = [f"What does clause {number * 7} say? " * 12 for number in range(8)]


def answering(cached):
    async def answer(call):
        usage = {"prompt_tokens": 4500, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": cached}}
        call.answer(json.dumps({"choices": [], "usage": usage}).encode())

    return answer


def discover(tmp_path, bodies, look, cached=0, path="/v1/chat/completions"):
    """Have a router serve these requests, and look at what it says with the URL of its admin port."""

    async def check():
        async with engines(1, answering(cached)) as (engine,), routing(tmp_path, table_of(engine.address)) as router:
            for body in bodies:
                assert (await ask(router.port, post(body, path=path))).status == 200
            await asyncio.to_thread(look, f"http://127.0.0.1:{router.admin_port}")

    run(check())


def test_a_document_in_the_one_user_message_is_proposed_with_what_a_group_would_save(tmp_path, command):
    bodies = [chat(DOCUMENT + question, system="") for question in QUESTIONS]
    log = tmp_path / "requests.jsonl"
    log.write_text("\n".join(map(json.dumps, bodies)))

    def look(url):
        code, out, _ = command("discover", "--router", url, "-o", "json")
        assert code == 0
        (prefix,) = json.loads(out)["shared"]
        assert (prefix["group"], prefix["instructions"], round(prefix["requests"])) == ("-", False, 7)
        assert prefix["computedTokensPerSecond"] == prefix["tokensPerSecond"]  # the engine found nothing
        assert prefix["sessions"] == 7
        code, shown, _ = command("discover", "--router", url, "--sample", str(log))
        assert (code, "8 requests" in shown) == (0, True)
        assert "Clause" not in out + shown
        code, written, _ = command("discover", "--router", url, "--sample", str(log), "--write", "-")
        assert code == 0
        # the questions are alike, too, up to the number
        made = PromptGroupSpec.model_validate(yaml.safe_load(written)["spec"])
        assert made.prompt.system == DOCUMENT + "What does clause "
        assert "have the end of this text in their messages" in written
        code, _, err = command("discover", "--router", url, "--write", "-")
        assert (code, "give your own requests with --sample" in err) == (2, True)

    discover(tmp_path, bodies, look)


def test_a_document_before_questions_is_proposed_for_texts_too(tmp_path, command):
    def look(url):
        (prefix,) = json.loads(command("discover", "--router", url, "-o", "json")[1])["shared"]
        assert (prefix["group"], round(prefix["requests"])) == ("-", 7)

    bodies = [{"model": "llama", "prompt": DOCUMENT + question * 4} for question in QUESTIONS]
    discover(tmp_path, bodies, look, path="/v1/completions")


def test_what_caches_had_already_is_not_saved_again(tmp_path, command):
    def look(url):
        (prefix,) = json.loads(command("discover", "--router", url, "-o", "json")[1])["shared"]
        assert prefix["computedTokensPerSecond"] == 0
        assert "100%" in command("discover", "--router", url)[1]

    discover(tmp_path, [chat(DOCUMENT + question, system="") for question in QUESTIONS], look, cached=4400)


def test_what_requests_of_a_group_share_beyond_its_prompt_is_proposed(tmp_path, command):
    tenant = SYSTEM + DOCUMENT
    bodies = [chat(question, system=tenant) for question in QUESTIONS]
    log = tmp_path / "requests.jsonl"
    log.write_text("\n".join(map(json.dumps, bodies)))

    def look(url):
        (prefix,) = json.loads(command("discover", "--router", url, "-o", "json")[1])["shared"]
        assert (prefix["group"], prefix["instructions"]) == ("chat/support", True)
        out = command("discover", "--router", url)[1]
        assert "chat/support" in out
        assert "Every request matched a group." in out
        written = command("discover", "--router", url, "--sample", str(log), "--write", "-")[1]
        assert yaml.safe_load(written)["spec"]["prompt"]["system"] == tenant

    discover(tmp_path, bodies, look)


def test_a_prompt_that_is_declared_and_nothing_else_in_common_is_no_proposal(tmp_path, command):
    def look(url):
        assert command("discover", "--router", url) == (1, "Every request matched a group.\n", "")

    discover(tmp_path, [chat(question) for question in QUESTIONS], look)
