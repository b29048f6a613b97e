"""TLS to engines: the rule of the spec by which they are verified, and the parts of their pods that serve it."""

from typing import Any

from promptgroup_contract import names
from promptgroup_contract.engine_tls import CONFIG_MAP, SECRET, EngineTls
from promptgroup_operator.api.prompt_group import EngineSpec, EngineTlsSpec
from promptgroup_operator.engines.dialects.dialect import TLS_FOLDER


def tls_of(engine_tls_spec: EngineTlsSpec) -> EngineTls:
    """Return the rule of the spec by which engines are verified.

    Raises:
        ValueError: the spec names no source of authorities, which the API server rejects.
    """
    for kind, source in (
        (CONFIG_MAP, engine_tls_spec.ca_from.config_map_key_ref),
        (SECRET, engine_tls_spec.ca_from.secret_key_ref),
    ):
        if source is not None:
            return EngineTls(kind, source.name, source.key, engine_tls_spec.server_name or "")
    raise ValueError("spec.engine.tls.caFrom names no source")


def pod_parts(engine: EngineSpec, container: str) -> dict[str, Any]:
    """Return the part of a pod template with an engine's certificate, and with the rule by which it is verified.

    Args:
        engine: the spec.
        container: name of the engine's container.
    """
    tls = engine.tls
    if tls is None:
        return {}
    result: dict[str, Any] = {"metadata": {"annotations": {names.ANNOTATION_ENGINE_TLS: tls_of(tls).text()}}}
    if tls.secret_name is not None:
        mount = {"name": "tls", "mountPath": TLS_FOLDER, "readOnly": True}
        source = {"secretName": tls.secret_name, "defaultMode": 0o440}
        result["spec"] = {
            "containers": [{"name": container, "volumeMounts": [mount]}],
            "volumes": [{"name": "tls", "secret": source}],
        }
    return result
