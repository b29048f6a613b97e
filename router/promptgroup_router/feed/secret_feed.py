"""Follows the objects that routes refer to by name: clients' API keys, credentials for engines, and their authorities.

All are Secrets, and authorities may be in ConfigMaps.

They are read one by one, since a router may neither list nor watch them, and again every POLL_SECONDS, so that a key
that is added or withdrawn holds without a restart. For an object that cannot be read the last good value stays in use;
a Secret that does not exist has no keys.
"""

import asyncio
import base64
import contextlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from promptgroup_contract.access import Access
from promptgroup_contract.engine_tls import CONFIG_MAP, SECRET
from promptgroup_contract.names import is_object_name
from promptgroup_contract.table import RoutingTable
from promptgroup_router.access.keyring import SecretRef
from promptgroup_router.base.authorities import BundleRef, bundle_of
from promptgroup_router.base.logs import fields
from promptgroup_router.decision.composition import features_of
from promptgroup_router.feed.key_copy import KeyCopy
from promptgroup_router.feed.kube_api import KubeApi, KubeError, object_path
from promptgroup_router.routing.process_points import ProcessFeatures
from promptgroup_router.routing.state import RouterState

log = logging.getLogger("promptgroup.access")

SECRETS = "secrets"
"""Their name among the keys that a router requests before it is ready."""
POLL_SECONDS = 15.0
"""Seconds between reads of a Secret of the API server."""
POLL_FOLDER_SECONDS = 1.0
"""Seconds between reads of a folder."""
AT_ONCE = 8
"""Secrets that are read at the same time."""
MAX_BYTES = 1 << 20
"""Most bytes of a Secret, as the API server has it."""
MAX_KEYS = 4096
"""Most keys of a Secret's data that are read from a folder."""


class _Object(NamedTuple):
    """A Secret or ConfigMap."""

    kind: str
    ref: SecretRef


class SecretError(Exception):
    """A Secret cannot be read now. The message never has its content."""


class SecretSource(Protocol):
    """The place where Secrets are read from."""

    @property
    def every(self) -> float:
        """Seconds between two reads."""

    async def read(self, ref: SecretRef, kind: str = SECRET) -> Mapping[str, bytes] | None:
        """Return the data of a Secret or a ConfigMap; None if there is none.

        Raises:
            SecretError: it cannot be read now.
        """


class KubeSecrets:
    """Secrets of an API server."""

    every = POLL_SECONDS

    def __init__(self, api: KubeApi) -> None:
        self._api = api

    async def read(self, ref: SecretRef, kind: str = SECRET) -> Mapping[str, bytes] | None:
        """Return the data of an object, as `SecretSource.read` does."""
        plural = "configmaps" if kind == CONFIG_MAP else "secrets"
        try:
            result = await self._api.get(object_path("/api/v1", ref.namespace, plural, ref.name))
        except KubeError as error:
            if error.status == 404:
                return None
            raise SecretError(str(error)) from None
        try:
            data = result.get("data") or {}  # type: ignore[attr-defined] # whatever it is: see below
            if kind == CONFIG_MAP:
                return {str(key): value.encode() for key, value in data.items()}
            return {str(key): base64.b64decode(value, validate=True) for key, value in data.items()}
        except (AttributeError, TypeError, ValueError):
            raise SecretError(f"the API server's answer is no {kind}") from None


class FolderSecrets:
    """Secrets and ConfigMaps that are mounted as files: `FOLDER/NAMESPACE/NAME/KEY`."""

    every = POLL_FOLDER_SECONDS

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def read(self, ref: SecretRef, kind: str = SECRET) -> Mapping[str, bytes] | None:
        """Return the data of an object, as `SecretSource.read` does."""
        if not (is_object_name(ref.namespace) and is_object_name(ref.name)):
            return None  # it would lead out of the folder
        folder = self._folder / ref.namespace / ref.name
        data: dict[str, bytes] = {}
        left = MAX_BYTES
        try:
            for path in sorted(folder.iterdir()):
                if path.name.startswith(".") or not path.is_file():
                    continue  # kubelets store the versions of a volume in `..data`
                with path.open("rb") as file:
                    data[path.name] = file.read(left + 1)
                left -= len(data[path.name])
                if left < 0 or len(data) > MAX_KEYS:
                    raise SecretError(f"{folder} has more than {MAX_BYTES} bytes or {MAX_KEYS} files")
        except FileNotFoundError:
            # the folder is not there, or its files are being replaced
            if folder.is_dir():
                raise SecretError(f"{folder} is being replaced") from None
            return None
        except OSError as error:
            raise SecretError(f"{folder} cannot be read: {error.strerror}") from None
        return data


def key_secrets(table: RoutingTable, default: Access) -> frozenset[SecretRef]:
    """Return the Secrets that hold the API keys of a table's groups."""
    return frozenset(
        SecretRef(group.namespace, name)
        for group in table.groups
        for name in (group.access if group.access is not None else default).secrets
    )


def credential_secrets(table: RoutingTable, features: ProcessFeatures) -> frozenset[SecretRef]:
    """Return the Secrets with the credentials that a table's engines, and features for this table, require."""
    engines = frozenset(
        SecretRef(group.namespace, slot.credential.partition("/")[0])
        for group in table.groups
        for revision in group.revisions
        for slot in revision.slots
        if slot.credential
    )
    return engines | {SecretRef(*secret) for secrets in features.secrets for secret in secrets(table)}


def bundles(table: RoutingTable) -> frozenset[BundleRef]:
    """Return the bundles of authorities by which a table's engines are verified."""
    return frozenset(
        bundle_of(group.namespace, slot.tls)
        for group in table.groups
        for revision in group.revisions
        for slot in revision.slots
        if slot.tls is not None
    )


class _Wanted(NamedTuple):
    """All that a table refers to."""

    keys: frozenset[SecretRef]
    """Secrets with clients' keys."""
    credentials: frozenset[SecretRef]
    """Secrets with engines' credentials."""
    bundles: frozenset[BundleRef]

    def objects(self) -> list[_Object]:
        """Return the objects that hold it, in order."""
        secrets = {_Object(SECRET, ref) for ref in self.keys | self.credentials}
        return sorted(
            secrets | {_Object(bundle.kind, SecretRef(bundle.namespace, bundle.name)) for bundle in self.bundles}
        )


class SecretFeed:
    """Reads Secrets while routes refer to them."""

    def __init__(self, state: RouterState, source: SecretSource | None, copy: KeyCopy | None = None) -> None:
        """Begin with nothing read.

        Args:
            state: its table names the required Secrets, and its keyring gets their contents.
            source: the place where they are; None where a router has been given none.
            copy: the file that stores their contents, if there is one.
        """
        self._copy = copy
        self._state = state
        self._source = source
        self._changed = asyncio.Event()
        self._reported: dict[_Object, list[str]] = {}
        """Secret or ConfigMap → what was last logged of it."""
        self._limit = asyncio.Semaphore(AT_ONCE)
        state.untried.add(SECRETS)

    def table_changed(self) -> None:
        """Look at the table at once: it may refer to other Secrets, or to none."""
        if SECRETS in self._state.untried and not any(self._wanted()):
            self._state.untried.discard(SECRETS)
        self._changed.set()

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            if self._state.loaded:
                await self._round()
                self._state.untried.discard(SECRETS)
            every = self._source.every if self._source is not None else POLL_SECONDS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(every):
                    await self._changed.wait()
            self._changed.clear()

    def _wanted(self) -> _Wanted:
        table = self._state.index.table
        default = features_of(self._state).authenticator.default
        return _Wanted(key_secrets(table, default), credential_secrets(table, self._state.features), bundles(table))

    async def _round(self) -> None:
        keyring = features_of(self._state).authenticator.keyring
        desired = self._wanted()
        keyring.keep(desired.keys)
        keyring.keep_credentials(desired.credentials)
        self._state.authorities.keep(desired.bundles)
        objects = desired.objects()
        self._reported = {result: value for result, value in self._reported.items() if result in objects}
        async with asyncio.TaskGroup() as tasks:
            for item in objects:
                tasks.create_task(self._follow(item, desired))
        if self._copy is not None:
            self._copy.save()

    async def _follow(self, result: _Object, wanted: _Wanted) -> None:
        async with self._limit:
            if self._source is None:
                self._say(result, ["this router reads no Secrets: give --secrets-dir"])
                return
            try:
                data = await self._source.read(result.ref, result.kind)
            except SecretError as error:
                self._say(result, [f"it cannot be read, what was read last holds: {error}"])
                return
        keyring, ref = features_of(self._state).authenticator.keyring, result.ref
        is_secret = result.kind == SECRET
        problems = keyring.learn_keys(ref, data or {}) if is_secret and ref in wanted.keys else []
        if data is not None:  # an engine that runs is still what it was
            if is_secret and ref in wanted.credentials:
                keyring.learn_credentials(ref, data)
            problems += self._learn_bundles(result, wanted, data)
        self._say(result, problems if data is not None else [f"there is no such {result.kind}"])

    def _learn_bundles(self, result: _Object, wanted: _Wanted, data: Mapping[str, bytes]) -> list[str]:
        """Take the authorities that an object holds, and return what cannot be used of them."""
        place = (result.ref.namespace, result.kind, result.ref.name)
        of_object = sorted(bundle for bundle in wanted.bundles if bundle[:3] == place)
        learns = (self._state.authorities.learn(bundle_ref, data.get(bundle_ref.key, b"")) for bundle_ref in of_object)
        return [problem for problem in learns if problem]

    def _say(self, result: _Object, problems: list[str]) -> None:
        if problems:
            self._state.metrics.key_errors.add("secret")
        if problems == self._reported.get(result, []):
            return
        self._reported[result] = problems
        about = {"namespace": result.ref.namespace, result.kind.lower(): result.ref.name}
        subject = f"{result.kind} with {'keys' if result.kind == SECRET else 'authorities'}"
        for problem in problems:
            log.warning(subject, extra=fields(**about, problem=problem))
        if not problems:
            log.info("%s is good again", subject, extra=fields(**about))
