"""LoRA adapters, as vLLM 0.32 serves them, and SGLang where it differs (`SglangAdapters`).

- Adapters are loaded at the start (`--lora-modules NAME=PATH`), and at run time where the environment has
  VLLM_ALLOW_RUNTIME_LORA_UPDATING. One that is loaded already is refused with 400 unless `load_inplace` is set; a path
  that does not exist with 404.
- Requests name them as their model; the list of models has them with their path (`root`) and the model (`parent`).
- The prefix cache knows an adapter by name and path, not by its weights: an adapter that is replaced under both is
  answered from the KV of the old one, with a text that is neither's.
- At most `--max-loras` adapters run at the same time; requests for others wait. Blocks of one that does not run stay.

A path that is not absolute is taken for a repository, whose weights are its name.
"""

import hashlib
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

WEIGHTS = ("adapter_config.json", "adapter_model.safetensors")
"""Files of an adapter's folder."""


class AdapterRefusedError(Exception):
    """An adapter that is not loaded or unloaded: the status and the message of the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class LoadedAdapter:
    """An adapter in the engine's memory."""

    name: str
    path: str
    weights: str
    """Digest of its files when it was loaded."""
    load: str = ""
    """The id that SGLang makes of each load; empty for vLLM."""

    @property
    def cache_key(self) -> str:
        """The part of the keys of its blocks that no other adapter has."""
        return f"lora\0{self.name}\0{self.path}\0{self.load}"


class LoadedAdapters:
    """The adapters of one server, by name."""

    def __init__(self, modules: Iterable[tuple[str, str]] = ()) -> None:
        """Load those of the command line.

        Raises:
            AdapterRefusedError: one of them cannot be loaded: vLLM does not start.
        """
        self._by_name: dict[str, LoadedAdapter] = {}
        for name, path in modules:
            self.load(name, path)

    def requested(self, model: str) -> LoadedAdapter | None:
        """Return the adapter that a request names as its model; None if it names none."""
        return self._by_name.get(model)

    @property
    def by_name(self) -> Mapping[str, LoadedAdapter]:
        """Name → adapter; the mapping follows later changes."""
        return self._by_name

    def load(self, name: object, path: object, *, inplace: bool = False) -> None:
        """Load an adapter.

        Raises:
            AdapterRefusedError: it is loaded already, or there is none at the path.
        """
        if not (isinstance(name, str) and name and isinstance(path, str) and path):
            raise AdapterRefusedError(400, "Both 'lora_name' and 'lora_path' must be provided.")
        if name in self._by_name and not inplace:
            raise AdapterRefusedError(
                400,
                f"The lora adapter '{name}' has already been loaded. If you want to load the adapter in place, set "
                "'load_inplace' to True.",
            )
        self._by_name[name] = LoadedAdapter(name, path, _weights(name, path))

    def unload(self, name: object) -> None:
        """Unload an adapter.

        Raises:
            AdapterRefusedError: it is not loaded.
        """
        if not isinstance(name, str) or name not in self._by_name:
            raise AdapterRefusedError(404, f"The lora adapter '{name}' cannot be found.")
        del self._by_name[name]


class SglangAdapters:
    """The adapters of one server, as SGLang 0.5.23 serves them.

    - Requests name them behind the model and a colon. A name alone is answered by the model without the adapter.
    - Each load has a cache of its own, also of the same path: nothing is answered from the KV of replaced weights.
    - When more than `--max-loaded-loras` are there, the least recently used one is unloaded.
    - A request for one that was unloaded, by whomever, loads it again, with an empty cache.
    """

    def __init__(self, model: str, modules: Iterable[tuple[str, str]] = (), most: int = 0) -> None:
        """Load those of the command line.

        Args:
            model: name under which the model is served.
            modules: name and path of each.
            most: adapters that are loaded at the same time; 0 for any number.

        Raises:
            AdapterRefusedError: one of them cannot be loaded: SGLang does not start.
        """
        self._model = model
        self._most = most
        self._by_name: dict[str, LoadedAdapter] = {}
        """Name → adapter, the least recently used first."""
        self._paths: dict[str, str] = {}
        """Name → path of every adapter that was ever loaded."""
        self._loads = itertools.count()
        for name, path in modules:
            self.load(name, path)

    @property
    def by_name(self) -> Mapping[str, LoadedAdapter]:
        """Name → adapter; the mapping follows later changes."""
        return self._by_name

    def requested(self, model: str) -> LoadedAdapter | None:
        """Return the adapter that a request names in its model; None if it names none.

        Raises:
            AdapterRefusedError: it was never loaded.
        """
        if model == self._model or ":" not in model:
            return None
        before = f"{self._model}:"
        name = (model.removeprefix(before) if model.startswith(before) else model.partition(":")[2]).strip()
        if not name:
            return None
        if name not in self._paths:
            raise AdapterRefusedError(400, f"Got LoRA adapter that has never been loaded: {name}")
        if name not in self._by_name:
            self.load(name, self._paths[name])
        self._by_name[name] = adapter = self._by_name.pop(name)
        return adapter

    def load(self, name: object, path: object) -> None:
        """Load an adapter.

        Raises:
            AdapterRefusedError: it is loaded already, or there is none at the path.
        """
        if not (isinstance(name, str) and name and isinstance(path, str) and path):
            raise AdapterRefusedError(400, "validation error: lora_name and lora_path: Field required")
        if name in self._by_name:
            raise AdapterRefusedError(400, f"Failed to load LoRA adapter {name} because it is already loaded")
        try:
            weights = _weights(name, path)
        except AdapterRefusedError as error:
            raise AdapterRefusedError(400, str(error)) from error
        self._by_name[name] = LoadedAdapter(name, path, weights, f"{next(self._loads)}")
        self._paths[name] = path
        if self._most and len(self._by_name) > self._most:
            del self._by_name[next(iter(self._by_name))]

    def unload(self, name: object) -> None:
        """Unload an adapter.

        Raises:
            AdapterRefusedError: it is not loaded.
        """
        if not isinstance(name, str) or name not in self._by_name:
            raise AdapterRefusedError(400, f"LoRA with name {name} does not exist.")
        del self._by_name[name]


def parse_module(text: str) -> tuple[str, str]:
    """Return name and path of `NAME=PATH`, or of a JSON object.

    Raises:
        ValueError: it is neither.
    """
    if text.startswith("{"):
        module = orjson.loads(text)
        return str(module["name"]), str(module["path"])
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise ValueError(f"{text!r} is no NAME=PATH")
    return name, path


def _weights(name: str, path: str) -> str:
    digest = hashlib.sha256(path.encode() if not path.startswith("/") else b"")
    if path.startswith("/"):
        files = [Path(path) / file for file in WEIGHTS]
        if not files[0].is_file():
            raise AdapterRefusedError(404, f"Loading lora {name} failed: No adapter found for {path}")
        for file in files:
            digest.update(file.read_bytes() if file.is_file() else b"")
    return digest.hexdigest()[:16]
