"""Prompts and requests to lint, and what is found in them."""

import orjson

from promptgroup_cli.lint.linter import Linter
from promptgroup_cli.lint.subject import LintSubject, Origin, sent_prompt
from promptgroup_router.apis.request import ApiKind, parse

STATIC = "You are the support assistant of Example Ltd. Answer in the language of the customer, shortly and kindly."


def tool(name, **more):
    return {"type": "function", "function": {"name": name, "description": f"Does {name}."} | more}


def declared(system, tools="", origin=Origin.PROMPT, **more):
    return LintSubject("file", 1, origin, "", system, tools, **more)


def chat(system=STATIC, *said, line=1, **fields):
    """A request; `said` are the messages of user and assistant in turn."""
    turns = said or ("Where is my order?",)
    messages = [{"role": ("user", "assistant")[i % 2], "content": each} for i, each in enumerate(turns)]
    if system:
        messages.insert(0, {"role": "system", "content": system})
    body = {"model": "m", "messages": messages} | fields
    return sent_prompt("log", line, parse(ApiKind.CHAT, orjson.dumps(body)))


def text(prompt, **fields):
    return sent_prompt("log", 1, parse(ApiKind.TEXT, orjson.dumps({"model": "m", "prompt": prompt} | fields)))


def report(*subjects, block=16, show=0):
    linter = Linter(block, show)
    for each in subjects:
        linter.see(each)
    return linter.report()


def found(*subjects, **limits):
    """(rule, severity, field, offset) of each finding."""
    return [
        (each.rule.id, each.severity.name.lower(), each.place.field, each.place.offset)
        for each in report(*subjects, **limits).findings
    ]
