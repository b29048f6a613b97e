"""Specs that the CRD's rules refuse: fields that replace those of a sound one, and a part of what is said."""

from typing import Any

BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "two sources": (
        {"prompt": {"system": "x", "systemFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}},
        "spec.prompt:",
    ),
    "no source": ({"prompt": {}}, "spec.prompt: prompt needs exactly one of system"),
    "an empty reference": ({"prompt": {"systemFrom": {}}}, "spec.prompt.systemFrom: name exactly one source"),
    "no text": ({"prompt": {"system": ""}}, "prompt.system is empty"),
    "tools twice": (
        {"prompt": {"system": "x", "tools": [{}], "toolsFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}},
        "tools or toolsFrom",
    ),
    "messages twice": (
        {
            "prompt": {
                "system": "x",
                "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
                "messagesFrom": {"configMapKeyRef": {"name": "a", "key": "b"}},
            }
        },
        "messages or messagesFrom",
    ),
    "half an example": (
        {"prompt": {"system": "x", "messages": [{"role": "user", "content": "a"}]}},
        "spec.prompt.messages: ",
    ),
    "an example out of turn": (
        {
            "prompt": {
                "system": "x",
                "messages": [{"role": "assistant", "content": "b"}, {"role": "user", "content": "a"}],
            }
        },
        "spec.prompt.messages: ",
    ),
    "instructions before messages": (
        {
            "prompt": {"system": "x", "messagesFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}},
            "routing": {"ownInstructions": "Append"},
        },
        "spec.routing.ownInstructions: ",
    ),
    "bounds crossed": ({"replicas": None, "sizing": {"minReplicas": 3, "maxReplicas": 2}}, "spec.sizing: "),
    "no time to first token": (
        {"replicas": None, "sizing": {"maxReplicas": 2, "targets": {"ttft": "0ms"}}},
        "spec.sizing.targets.ttft: ",
    ),
    "size given twice": ({"sizing": {"maxReplicas": 2}}, "spec: replicas"),
    "equal weights": ({"rollout": {"steps": [{"weight": 5}, {"weight": 5}]}}, "spec.rollout.steps: "),
    "falling weights": ({"rollout": {"steps": [{"weight": 9}, {"weight": 5}]}}, "spec.rollout.steps: "),
    "no surge": ({"rollout": {"maxSurge": 0}}, "spec.rollout.maxSurge: "),
    "no surge in percent": ({"rollout": {"maxSurge": "0%"}}, "spec.rollout.maxSurge: "),
    "a surge in words": ({"rollout": {"maxSurge": "some"}}, "spec.rollout.maxSurge: "),
    "a model of the group's name": ({"model": "support"}, "spec.model: "),
}
