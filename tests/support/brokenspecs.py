"""Specs that the CRD's rules refuse: fields that replace those of a sound one, and a part of what is said."""

from typing import Any

GUEST: dict[str, Any] = {"engine": None, "engineFrom": {"promptGroup": "pool"}, "replicas": None}

BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "no engine": ({"engine": None}, "spec: name exactly one of engine"),
    "two engines": ({"engineFrom": {"promptGroup": "pool"}, "replicas": None}, "spec: name exactly one of engine"),
    "no model": ({"model": None}, "spec: model is missing"),
    "a guest without a prompt": (
        {"engine": None, "engineFrom": {"promptGroup": "pool"}, "replicas": None, "prompt": None},
        "spec: a group with engineFrom needs a prompt",
    ),
    "a guest with replicas": (
        {"engine": None, "engineFrom": {"promptGroup": "pool"}, "replicas": 2},
        "spec.engineFrom: replicas, sizing, cache and gateway belong to",
    ),
    "a guest of itself": (
        {"engine": None, "engineFrom": {"promptGroup": "support"}, "replicas": None},
        "spec.engineFrom names the group itself",
    ),
    "a placement with a number and bounds": (
        {**GUEST, "placement": {"replicas": 2, "maxReplicas": 3}},
        "spec.placement: placement has replicas and bounds",
    ),
    "a placement with one bound": (
        {**GUEST, "placement": {"minReplicas": 2}},
        "spec.placement: placement.minReplicas is set without",
    ),
    "a placement of crossed bounds": (
        {**GUEST, "placement": {"minReplicas": 3, "maxReplicas": 2}},
        "spec.placement: placement.minReplicas is above",
    ),
    "a placement without a host": ({"placement": {"replicas": 2}}, "spec.placement: placement says where"),
    "weights from nowhere": (
        {"engine": {"image": "engine", "weights": {}}},
        "spec.engine.weights: engine.weights needs exactly one of image",
    ),
    "weights from two volumes": (
        {"engine": {"image": "engine", "weights": {"image": "weights", "claimName": "weights"}}},
        "spec.engine.weights: engine.weights needs exactly one of image",
    ),
    "weights of a claim that is pulled": (
        {"engine": {"image": "engine", "weights": {"claimName": "weights", "pullPolicy": "Always"}}},
        "spec.engine.weights.pullPolicy: engine.weights.pullPolicy is about images",
    ),
    "weights of a claim that nodes pull ahead": (
        {"engine": {"image": "engine", "weights": {"claimName": "weights", "prefetch": True}}},
        "spec.engine.weights.prefetch: engine.weights.prefetch is about images",
    ),
    "an adapter of two sources": (
        {
            "engine": {"image": "x", "adapters": {"claimName": "a"}},
            "adapter": {"name": "tone", "source": {"folder": "a", "huggingFace": "a/b"}},
        },
        "spec.adapter.source: adapter.source needs exactly one",
    ),
    "an adapter without a volume": (
        {"adapter": {"name": "tone", "source": {"folder": "a"}}},
        "spec.adapter: adapter.source.folder is on a volume, and the engine has none",
    ),
    "an adapter of an engine that has none": (
        {
            "engine": {"image": "x", "type": "TensorRTLLM"},
            "adapter": {"name": "tone", "source": {"huggingFace": "a/b"}},
        },
        "spec.adapter: adapter is set, and adapters are served by engines of types vLLM and SGLang only",
    ),
    "room for adapters in an engine that has none": (
        {"engine": {"image": "x", "type": "TensorRTLLM", "adapters": {}}},
        "spec.engine.adapters: engine.adapters is set, and adapters are loaded by engines of types vLLM and",
    ),
    "less memory than active adapters": (
        {"engine": {"image": "x", "adapters": {"maxActive": 8, "maxInMemory": 4}}},
        "spec.engine.adapters.maxInMemory: engine.adapters.maxInMemory is less than maxActive",
    ),
    "an adapter that is the model": (
        {"model": "llama", "adapter": {"name": "llama", "source": {"huggingFace": "a/b"}}},
        "spec.adapter.name: adapter.name is also spec.model",
    ),
    "an adapter that is an alias": (
        {"modelAliases": ["tone"], "adapter": {"name": "tone", "source": {"huggingFace": "a/b"}}},
        "spec.adapter.name: adapter.name is also spec.model",
    ),
    "an adapter that is the group": (
        {"adapter": {"name": "support", "source": {"huggingFace": "a/b"}}},
        "spec.adapter.name equals metadata.name",
    ),
    "an alias that is the model": (
        {"model": "llama", "modelAliases": ["gpt", "llama"]},
        "spec.modelAliases: modelAliases has spec.model",
    ),
    "an alias twice": ({"modelAliases": ["gpt", "gpt"]}, "spec.modelAliases: modelAliases has spec.model"),
    "an alias that is the group": ({"modelAliases": ["gpt", "support"]}, "spec.modelAliases has metadata.name"),
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
    "streams that go on without ids": (
        {"engine": {"image": "lmsysorg/sglang:v0.5", "type": "SGLang"}, "routing": {"resume": {"max": 1}}},
        "spec.routing.resume: routing.resume needs the ids",
    ),
    "streams that go on and are kept": (
        {"responses": {"cache": "Exact"}, "routing": {"resume": {"max": 1}}},
        "spec.routing.resume: routing.resume is set",
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
    "a way past access": (
        {"gateway": {"failureMode": "FailOpen"}, "access": {"type": "APIKey", "apiKey": {"secrets": ["keys"]}}},
        "spec.gateway.failureMode: ",
    ),
    "a salt of the clients' and one of the router's": (
        {"routing": {"isolation": "Caller", "allowedEngineFields": ["rid", "extra_key"]}},
        "spec.routing.allowedEngineFields: ",
    ),
    "a header that is the router's own": (
        {"routing": {"allowedEngineHeaders": ["x-tenant", "x-promptgroup-warmup"]}},
        "spec.routing.allowedEngineHeaders: ",
    ),
    "a header that frames messages": (
        {"routing": {"allowedEngineHeaders": ["transfer-encoding"]}},
        "spec.routing.allowedEngineHeaders: ",
    ),
    "callers kept apart and not known": (
        {"routing": {"isolation": "Caller"}, "access": {"type": "Anonymous"}},
        "spec.routing.isolation: ",
    ),
    "a certificate for an engine that serves no TLS": (
        {
            "engine": {
                "type": "TensorRTLLM",
                "image": "engine",
                "tls": {"secretName": "a", "caFrom": {"configMapKeyRef": {"name": "b", "key": "c"}}},
            }
        },
        "spec.engine.tls: engine.tls.secretName is set",
    ),
    "data-parallel ranks set twice": (
        {"engine": {"image": "engine", "dataParallelSize": 2, "args": ["--data_parallel_size=2"]}},
        "spec.engine.dataParallelSize: engine.dataParallelSize and an argument",
    ),
    "data-parallel ranks that nobody can choose": (
        {"engine": {"type": "TensorRTLLM", "image": "engine", "dataParallelSize": 2}},
        "spec.engine.dataParallelSize: engine.dataParallelSize is above 1",
    ),
    "several nodes of TensorRT-LLM": (
        {"engine": {"type": "TensorRTLLM", "image": "engine", "nodes": 2}},
        "spec.engine.nodes: engine.nodes is above 1, and TensorRT-LLM starts its other nodes by MPI",
    ),
    "data-parallel ranks on several nodes": (
        {"engine": {"image": "engine", "nodes": 2, "dataParallelSize": 2}},
        "spec.engine.nodes: engine.nodes and engine.dataParallelSize are both above 1",
    ),
    "authorities from nowhere": (
        {"engine": {"image": "engine", "tls": {"caFrom": {}}}},
        "spec.engine.tls.caFrom: name exactly one source",
    ),
    "bounds crossed": ({"replicas": None, "sizing": {"minReplicas": 3, "maxReplicas": 2}}, "spec.sizing: "),
    "no time to first token": (
        {"replicas": None, "sizing": {"maxReplicas": 2, "targets": {"ttft": "0ms"}}},
        "spec.sizing.targets.ttft: ",
    ),
    "asleep after seconds": (
        {"replicas": None, "sizing": {"minReplicas": 0, "maxReplicas": 2, "idleAfter": "59s"}},
        "spec.sizing.idleAfter: ",
    ),
    "size given twice": ({"sizing": {"maxReplicas": 2}}, "spec: replicas"),
    "equal weights": ({"rollout": {"steps": [{"weight": 5}, {"weight": 5}]}}, "spec.rollout.steps: "),
    "falling weights": ({"rollout": {"steps": [{"weight": 9}, {"weight": 5}]}}, "spec.rollout.steps: "),
    "a surge below zero": ({"rollout": {"maxSurge": -1}}, "spec.rollout.maxSurge: "),
    "a surge in percent with zeros in front": ({"rollout": {"maxSurge": "00%"}}, "spec.rollout.maxSurge: "),
    "a surge in words": ({"rollout": {"maxSurge": "some"}}, "spec.rollout.maxSurge: "),
    "a type of access without its settings": ({"access": {"type": "APIKey"}}, "spec.access.apiKey: "),
    "settings of another type of access": (
        {"access": {"type": "Anonymous", "header": {"name": "x-user", "sources": ["10.0.0.0/8"]}}},
        "spec.access.header: ",
    ),
    "tokens without an issuer's settings": ({"access": {"type": "JWT"}}, "spec.access.jwt: "),
    "a list of callers whom nobody knows": (
        {"access": {"type": "Anonymous", "callers": ["team-a"]}},
        "spec.access.callers: ",
    ),
    "a cache without a tier": ({"cache": {}}, "spec.cache: "),
    "a tier that no engine looks into": (
        {"cache": {"prefixCaching": "Disabled", "offload": {"memory": "8Gi"}}},
        "spec.cache.prefixCaching: ",
    ),
    "a size by caches that are off": (
        {"replicas": None, "sizing": {"maxReplicas": 2}, "cache": {"prefixCaching": "Disabled"}},
        "spec.sizing: ",
    ),
    "two connectors of vLLM": (
        {"cache": {"offload": {"memory": "8Gi"}, "pool": {"type": "LMCache", "address": "a:1"}}},
        "spec.cache.pool: vLLM has one KV connector",
    ),
    "a pool that SGLang does not know": (
        {
            "engine": {"type": "SGLang", "image": "i"},
            "cache": {"offload": {"memory": "8Gi"}, "pool": {"type": "LMCache", "address": "a:1"}},
        },
        "spec.cache.pool: SGLang",
    ),
    "a pool behind no memory": (
        {"engine": {"type": "SGLang", "image": "i"}, "cache": {"pool": {"type": "Mooncake", "address": "a:1"}}},
        "spec.cache.pool: SGLang",
    ),
    "a pool of TensorRT-LLM": (
        {"engine": {"type": "TensorRTLLM", "image": "i"}, "cache": {"pool": {"type": "Mooncake", "address": "a:1"}}},
        "spec.cache.pool: TensorRT-LLM",
    ),
    "a volume of TensorRT-LLM": (
        {"engine": {"type": "TensorRTLLM", "image": "i"}, "cache": {"offload": {"memory": "8Gi", "claimName": "kv"}}},
        "spec.cache.offload.claimName: ",
    ),
    "RDMA to LMCache": (
        {"cache": {"pool": {"type": "LMCache", "address": "a:1", "transport": "RDMA"}}},
        "spec.cache.pool.transport: ",
    ),
    "a model of the group's name": ({"model": "support"}, "spec.model"),
}
