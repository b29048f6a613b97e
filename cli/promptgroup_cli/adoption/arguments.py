"""Decides which arguments of an engine stay in `spec.engine.args`, and which the operator sets itself."""

import json
from collections.abc import Iterator

from promptgroup_cli.adoption.decision import AdoptionError, FieldDecision, Verdict
from promptgroup_cli.adoption.startup import EngineFlag, Startup
from promptgroup_operator.api.prompt_group import EngineType
from promptgroup_operator.engines.dialects.vllm import HANDS_OVER

_OWN = {
    "--host": "the operator has engines listen on their pods' addresses",
    "--enable-prompt-tokens-details": "the operator sets it",
    "--shutdown-timeout": "the operator sets it, by rollout.drainTimeout",
    "--enable-cache-report": "the operator sets it",
    "--enable-metrics": "the operator sets it",
    "--enable-prefix-caching": "engines have it on by themselves",
    "--no-enable-prefix-caching": "a host keeps prompts in its prefix cache",
    "--disable-radix-cache": "a host keeps prompts in its prefix cache",
    "--api-key": "put the key into a Secret, and name it in engine.credentialFrom",
    "--ssl-keyfile": "name the certificate's Secret in engine.tls",
    "--ssl-certfile": "name the certificate's Secret in engine.tls",
    "--ssl-ca-certs": "name the authority in engine.tls.caFrom",
}
"""EngineFlag → why it is left out."""
_SEVERAL_NODES = frozenset({"--nnodes", "--node-rank", "--dist-init-addr", "--data-parallel-address", "--headless"})
_ADAPTERS = frozenset({"--enable-lora", "--lora-modules", "--lora-paths"})
_TIERS = frozenset({"--kv-transfer-config", "--kv-offloading-size", "--enable-hierarchical-cache"})


def remaining(startup: Startup) -> Iterator[tuple[EngineFlag | None, FieldDecision]]:
    """Yield each flag that stays in the arguments, or None in its place, with the decision about it.

    Raises:
        AdoptionError: the engine is a part of something that no group can serve.
    """
    for flag in startup.flags:
        name = flag.name
        if name in ("--model", "--model-path") or name == "--served-model-name":
            yield None, FieldDecision(str(flag), Verdict.CHANGED, "spec.model")
        elif name == "--port":
            yield None, FieldDecision(str(flag), Verdict.CHANGED, "engine.port")
        elif name in _OWN:
            shown = name if name == "--api-key" else str(flag)
            yield None, FieldDecision(shown, Verdict.LEFT_OUT, _OWN[name])
        elif name in _SEVERAL_NODES and flag.value not in ("1", "0"):
            raise AdoptionError(f"{flag}: the engine spans several nodes, which replicas of a PromptGroup cannot")
        elif _hands_over(flag, startup.engine):
            raise AdoptionError(
                f"{name}: the engine is one half of a pair that splits prefill and decode; adopt a Deployment whose "
                "engines do both"
            )
        else:
            yield flag, _stays(flag)


def _stays(flag: EngineFlag) -> FieldDecision:
    if flag.name.endswith(("-token", "-password", "-secret")):
        return FieldDecision(flag.name, Verdict.UNCHANGED, "it is in plain text: read it from a Secret, by a variable")
    return FieldDecision(str(flag), Verdict.UNCHANGED, _note(flag.name))


def _note(name: str) -> str:
    if name in _ADAPTERS:
        return "routers serve an adapter by a group with spec.adapter: replace the flags by spec.engine.adapters"
    if name in _TIERS:
        return "spec.cache describes the usual KV tiers; conditions tell more of those"
    return ""


def _hands_over(flag: EngineFlag, engine: EngineType) -> bool:
    if engine is EngineType.SGLANG:
        return flag.name == "--disaggregation-mode" and flag.value not in ("", "null")
    if flag.name != "--kv-transfer-config":
        return False
    try:
        config = json.loads(" ".join(flag.values))
    except (ValueError, RecursionError):
        return False
    return isinstance(config, dict) and config.get("kv_connector") in HANDS_OVER
