"""Requests to one engine about its LoRA adapters: the list of them, and loading and unloading while it runs."""

from promptgroup_operator.adapters.identity import Adapter
from promptgroup_operator.adapters.unloading import LoadedModel
from promptgroup_operator.base.errors import AdapterError, EngineError
from promptgroup_operator.engines.dialects.dialect import AdapterForm
from promptgroup_operator.engines.dialects.registry import DIALECTS
from promptgroup_operator.engines.engine import EngineClient
from promptgroup_operator.world.warming import Refresh, Warmup

LOAD_SECONDS = 60.0
"""Time limit in seconds to load an adapter, whose weights may be downloaded; they have some hundred megabytes."""
UNLOAD_SECONDS = 5.0
"""Time limit in seconds to unload an adapter, which engines do at once."""
MAX_LIST = 1 << 20
"""Maximum size of a list of models in bytes: an adapter takes about 500."""


def loaded_models(engine: EngineClient, address: str) -> list[LoadedModel]:
    """Return the engine's list of models; entries in an unknown form are left out.

    Raises:
        EngineError: there was no response in time, or it is no such list.
    """
    listed = engine.ask(address, "/v1/models", MAX_LIST).get("data")
    if not isinstance(listed, list):
        raise EngineError("/v1/models: the answer has no list of models")
    models = []
    for item in listed:
        if isinstance(item, dict) and isinstance(item.get("id"), str):
            root, parent = (text if isinstance(text := item.get(key), str) else "" for key in ("root", "parent"))
            models.append(LoadedModel(item["id"], root, parent))
    return models


def load_for(job: Warmup | Refresh, engine: EngineClient) -> None:
    """Load the adapter of a warm-up or refresh, if it needs one that the engine does not have.

    Raises:
        AdapterError: the engine refused it, or has another one under its name.
        EngineError: there was no response in time.
    """
    form = DIALECTS[job.engine].adapters
    if job.loads is not None and form is not None:
        ensure_loaded(engine, job.address, form, job.loads)


def ensure_loaded(engine: EngineClient, address: str, form: AdapterForm, adapter: Adapter) -> None:
    """Load an adapter, unless the engine has it.

    Raises:
        AdapterError: the engine refused it, or has another one under its name.
        EngineError: there was no response in time.
    """
    roots = {model.name: model.root for model in loaded_models(engine, address)}
    if roots.get(adapter.served, adapter.path) != adapter.path:
        raise AdapterError(f"the engine has another adapter of the name {adapter.served}")
    if adapter.served in roots:
        return
    body = {"lora_name": adapter.served, "lora_path": adapter.path}
    try:
        engine.send(address, form.load, body, LOAD_SECONDS)
    except EngineError as error:
        if error.status is None or error.status >= 500:
            raise
        raise AdapterError(
            f"the engine did not load the adapter from {adapter.path} ({error}): see that it is there, is one of this "
            "model, and has no higher rank than spec.engine.adapters.maxRank"
        ) from error


def unload(engine: EngineClient, address: str, form: AdapterForm, name: str) -> None:
    """Unload an adapter.

    Raises:
        EngineError: the engine does not have it, or did not respond in time.
    """
    engine.send(address, form.unload, {"lora_name": name}, UNLOAD_SECONDS)
