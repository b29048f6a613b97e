"""Connections to a cluster and to its routers. Every failure is one line that names what failed, and a way out."""

import json
import logging
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, Self

from promptgroup_cli.base import bounded_json
from promptgroup_cli.base.bounded_json import JsonError
from promptgroup_cli.base.errors import InputError, ReachError
from promptgroup_cli.base.flags import ClusterChoice
from promptgroup_cli.reach.kubeconfig import FoundKubeconfig, default_namespace, find_kubeconfig
from promptgroup_contract import names
from promptgroup_operator.base.errors import ClusterError
from promptgroup_operator.base.redacted_url import redacted_url
from promptgroup_operator.base.settings import Settings

SECONDS = 15.0
"""Deadline for the whole answer of a router whose address was given."""
ANSWER_BYTES = 64 << 20
"""Limit of that answer: the metrics of a router with a thousand groups have 5 MiB."""
MOST_CHARACTERS = 300
"""Characters that are shown of a router's error, and of an error that the client library logs."""

CHANGES = ("/responses/purge",)
"""Paths of an admin port that change state."""

Manifest = Mapping[str, Any]
"""An object of the API server; the operator's own name of the type would import its models."""

Router = Callable[[str, bytes | None], bytes]
"""Sends a body to a path of a router's admin port (None: a GET) and returns the answer. Raises ReachError."""


class ClusterConnection:
    """The cluster that flags and the kubeconfig name, for the time of a `with`.

    Args:
        choice: the cluster that the flags name.

    Raises:
        InputError: the kubeconfig cannot be used.
        ReachError: the kubeconfig's program gives no credentials; by the methods, when the cluster does not answer.
    """

    def __init__(self, choice: ClusterChoice) -> None:
        settings = Settings()
        kubeconfig = find_kubeconfig(choice, settings)
        # the client takes half a second to import, which a kubeconfig that cannot be used need not cost
        from prometheus_client import Counter  # noqa: PLC0415

        from promptgroup_operator.kube import api_server  # noqa: PLC0415

        with _library_errors() as library_errors:
            try:
                api = api_server.connect(settings, choice.kubeconfig, choice.context)
                self.namespace = choice.namespace or default_namespace(settings, choice.kubeconfig, choice.context)
            except ClusterError as error:
                raise InputError(str(error)) from None
            except Exception as error:  # noqa: BLE001 - the client raises any error on a file that is none
                problem = type(error).__name__
                raise InputError(
                    f"{kubeconfig.paths}: not a kubeconfig ({problem}); `kubectl config view` shows one"
                ) from None
        if library_errors:
            raise _without_credentials(kubeconfig, library_errors[0])
        self.admin_token = ""
        """The token that routers require for changes of state; empty for that of their namespace's Secret."""
        self.kubectl = choice.kubectl
        """The beginning of a kubectl command line for this cluster."""
        # the counter is in no registry
        self._server = api_server.KubeClient(api, Counter("requests", "Requests.", ["verb", "code"], registry=None))
        self._collection, self._list = api_server.collection_path, api_server.list_objects

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.api.rest_client.pool_manager.clear()

    def list(self, kind: str, namespace: str, *, labels: str = "", fields: str = "", name: str = "") -> list[Manifest]:
        """Return the objects of a kind.

        Args:
            kind: of the objects.
            namespace: of the objects; empty for all namespaces.
            labels: a label selector; empty for all objects.
            fields: a field selector; empty for all objects.
            name: of one object, in place of a field selector; empty for all.
        """
        query = {"labelSelector": labels, "fieldSelector": f"metadata.name={name}" if name else fields}
        query = {key: value for key, value in query.items() if value}
        try:
            return self._list(self._server, self._collection(kind, namespace), query)[0]
        except ClusterError as error:
            raise ReachError(self._plain(error, kind)) from None

    def _admin_token(self, namespace: str) -> str:
        """Return the token that a namespace's routers require for changes of state; empty without one."""
        if self.admin_token:
            return self.admin_token
        try:
            result = self.list("Secret", namespace, name=names.ADMIN_SECRET)
        except ReachError:  # a user without the right to read it may have it in a file
            return ""
        return token_of(b64decode(result[0].get("data", {}).get(names.ADMIN_KEY, ""))) if result else ""

    def routers(self, namespace: str) -> Mapping[str, Router]:
        """Return the ready routers and pickers of a namespace by the name of their pod.

        Of all namespaces (an empty name), by `namespace/pod`.
        """
        pods = self.list("Pod", namespace, labels=f"app.kubernetes.io/name in ({names.ROUTER},{names.PICKER})")
        result = {_pod_name(pod, qualified=not namespace): self._router(pod) for pod in pods if _ready(pod)}
        if not result:
            where, into = (f"namespace {namespace}", namespace) if namespace else ("any namespace", "NAMESPACE")
            raise ReachError(
                f"no router is ready in {where}: name another one with -n, or a router by --router URL; "
                f"`{self.kubectl} apply -k manifests/router -n {into}` installs one"
            )
        return result

    def _router(self, pod: Manifest) -> Router:
        from promptgroup_operator.observe.decode import admin_port  # noqa: PLC0415 - imports the models, as above

        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        port = admin_port(pod)

        def ask(path: str, body: bytes | None) -> bytes:
            token = self._admin_token(namespace) if path in CHANGES else ""
            try:
                return ask_pod(self._server.api, AdminPort(namespace, name, port), path, body, token=token)
            except ClusterError as error:
                raise ReachError(
                    f"router {namespace}/{name} does not answer through the API server: {error}; instead: "
                    f"`{self.kubectl} port-forward -n {namespace} {name} {port}` and --router http://127.0.0.1:{port}"
                ) from None

        return ask

    def _plain(self, error: ClusterError, kind: str) -> str:
        match error.status:
            case None:
                return (
                    f"the API server does not answer ({error}): is the cluster up, and do KUBECONFIG and --context "
                    "name it?"
                )
            case 401:
                return "the API server does not accept the kubeconfig's credentials: log in again"
            case 403:
                return f"{error}: ask for a role that may get and list it"
            case 404:
                return f"the cluster has no kind {kind}: `{self.kubectl} apply -k crds` installs the CRDs"
            case _:
                return str(error)


class AdminPort(NamedTuple):
    """The admin port of a router's pod."""

    namespace: str
    pod: str
    number: int


def ask_pod(api: Any, port: AdminPort, path: str, data: bytes | None = None, *, token: str = "") -> bytes:
    """Send a GET, or a POST of JSON `data`, to a router's pod through the API server, and return the answer.

    The answer is the pod's own: it ends by a deadline and a size.

    Args:
        api: connection of the Kubernetes client, as `kube.api_server.connect` makes it.
        port: where the router listens.
        path: on that port.
        data: the body of a POST.
        token: the admin token, for a change of state.

    Raises:
        ClusterError: there was no answer within the limits, or a refusal by the API server or the pod.
    """
    from promptgroup_operator.base import deadline  # noqa: PLC0415 - as above
    from promptgroup_operator.kube.api_server import cluster_errors, object_path  # noqa: PLC0415

    proxied = f"{object_path('Pod', port.namespace, port.pod)}:{port.number}/proxy{path}"
    method, headers = ("GET", {}) if data is None else ("POST", {"Content-Type": "application/json"})
    headers[names.HEADER_CLIENT] = "api-server-proxy"
    if token:
        headers[names.HEADER_ADMIN_TOKEN] = token
    body = json.loads(data) if data is not None else None
    with cluster_errors(f"{method} {proxied}"), deadline.within(SECONDS, ANSWER_BYTES):
        request = api.param_serialize(method, proxied, header_params=headers, body=body, auth_settings=["BearerToken"])
        response = api.call_api(*request, _request_timeout=SECONDS)
        answer: bytes = response.response.read(ANSWER_BYTES + 1, decode_content=False)
        if response.status >= 300:
            response.data = answer
            api.response_deserialize(response, {})  # raises it
    if len(answer) > ANSWER_BYTES:
        raise ClusterError(f"{method} {proxied}: the answer is longer than {ANSWER_BYTES} bytes")
    return answer


def token_of(content: bytes) -> str:
    """Return the admin token in a file or a Secret.

    Raises:
        InputError: it cannot be sent in a header.
    """
    token = content.decode("latin-1").strip()
    if not token.isascii() or not token.isprintable():
        raise InputError("the admin token has characters that a header cannot hold: use letters and digits")
    return token


def routers_at(urls: Iterable[str], token: str = "") -> dict[str, Router]:
    """Return the routers whose admin ports are at these addresses, by their redacted address."""
    connect = partial(router_at, token=token) if token else router_at
    return {redacted_url(url): connect(url) for url in urls}


def router_at(url: str, token: str = "") -> Router:
    """Return the router whose admin port is at an address; it is sent the admin token, if there is one."""
    # as above
    import urllib3  # noqa: PLC0415

    from promptgroup_operator.base import deadline  # noqa: PLC0415
    from promptgroup_operator.base.unreachable import reason  # noqa: PLC0415

    shown = redacted_url(url)
    headers = {names.HEADER_CLIENT: "cli"} | ({names.HEADER_ADMIN_TOKEN: token} if token else {})

    def ask(path: str, body: bytes | None) -> bytes:
        method = "GET" if body is None else "POST"
        try:
            with (
                deadline.within(SECONDS, ANSWER_BYTES),
                deadline.keep(urllib3.PoolManager(retries=False, timeout=SECONDS)) as pool,
            ):
                response = pool.request(
                    method,
                    url.rstrip("/") + path,
                    body=body,
                    headers=headers,
                    preload_content=False,
                    redirect=False,
                )
                answer = response.read(ANSWER_BYTES + 1, decode_content=False)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ReachError(f"--router {shown} does not answer: {reason(error)}") from None
        if len(answer) > ANSWER_BYTES:
            limits = f"{SECONDS:.0f} s and {ANSWER_BYTES >> 20} MiB"
            raise ReachError(f"--router {shown}: the answer to {path} exceeds {limits}: is it an admin port (9090)?")
        if response.status == 403:
            raise ReachError(f"--router {shown} refuses: {_reason(answer)}")
        if response.status != 200:
            raise ReachError(f"--router {shown} answers {response.status} to {path}: is it an admin port (9090)?")
        return answer

    return ask


def _reason(answer: bytes) -> str:
    """Return a router's own reason for a refusal."""
    try:
        return str(bounded_json.parse(answer)["error"]["message"])[:MOST_CHARACTERS]
    except (JsonError, KeyError, TypeError):
        return "it does not say why"


def _pod_name(pod: Manifest, *, qualified: bool) -> str:
    metadata = pod["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if qualified else str(metadata["name"])


def _ready(pod: Manifest) -> bool:
    conditions = {condition["type"]: condition["status"] for condition in pod.get("status", {}).get("conditions", [])}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


class _Listener(logging.Handler):
    def __init__(self, messages: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._messages = messages

    def emit(self, record: logging.LogRecord) -> None:
        self._messages.append(" ".join(record.getMessage().split())[:MOST_CHARACTERS])


_SILENT = logging.NullHandler()


@contextmanager
def _library_errors() -> Iterator[list[str]]:
    """Yield a list that collects the errors that the client library logs: it raises none where an `exec` fails.

    Afterwards the library's log stays silent: a request without credentials is refused, and that is reported.
    """
    value: list[str] = []
    root, listener = logging.getLogger(), _Listener(value)
    root.addHandler(listener)
    root.addHandler(_SILENT)
    try:
        yield value
    finally:
        root.removeHandler(listener)


def _without_credentials(kubeconfig: FoundKubeconfig, value: str) -> InputError | ReachError:
    if kubeconfig.program and value.startswith("[Errno"):  # of the start of a process
        return InputError(
            f"{kubeconfig.paths}: the program {kubeconfig.program!r} of the kubeconfig's `exec`, which makes "
            "the credentials, is missing or cannot be started: install it, or put it on the PATH"
        )
    return ReachError(f"{kubeconfig.paths}: the kubeconfig's user gets no credentials ({value}): log in again")
