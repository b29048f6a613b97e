"""The names that users see on objects and in requests → tables, from the constants and the sentences below them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from promptgroup_cli.lint.linter import RULES
from promptgroup_router.apis import session_key
from promptgroup_router.apis.endpoints import ENDPOINTS
from sitegen.tables import sentence, table

ROOT = Path(__file__).parents[2]
NAMES = ROOT / "contract" / "promptgroup_contract" / "names.py"
EXIT_STATUSES = ROOT / "cli" / "promptgroup_cli" / "base" / "errors.py"
OBJECTS = ROOT / "operator" / "promptgroup_operator" / "plan" / "desired.py"
PACKAGES = (ROOT / "operator", ROOT / "router", ROOT / "contract")
DOMAIN = "promptgroup.dev/"

LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
LABELS = {
    "app.kubernetes.io/name": "The program that an object of the install belongs to; `promptgroup-router` selects the "
    "routers.",
    LABEL_MANAGED_BY: "`{}`, on all objects that the operator creates.",
}
"""Labels of Kubernetes' own list that the operator sets or reads, with a place for the one value that it sets."""

PLAIN_HEADERS = {
    "x-request-id": ("request and answer", "Id of the request; the router makes one where the client sends none."),
    "retry-after": ("answer", "Seconds to wait, with each status 503 and 429."),
}
"""Headers that are not of this project's making."""


def constants(path: Path) -> Iterator[tuple[str, object, str]]:
    """Yield name, value and docstring of each constant of a module whose value is written out."""
    yield from _constants(ast.parse(path.read_text()).body)


def _constants(body: list[ast.stmt]) -> Iterator[tuple[str, object, str]]:
    for node, after in zip(body, [*body[1:], None], strict=True):
        target: ast.expr | None = node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
        value = getattr(node, "value", None)
        if not isinstance(target, ast.Name) or not isinstance(value, ast.Constant):
            continue
        content = after.value if isinstance(after, ast.Expr) else None
        text = content.value if isinstance(content, ast.Constant) and isinstance(content.value, str) else ""
        yield target.id, value.value, text


def domain_names() -> dict[str, tuple[str, str]]:
    """Return name → (constant, sentence) of every label, annotation and condition of the project's domain."""
    result: dict[str, tuple[str, str]] = {}
    for package in PACKAGES:
        for path in sorted(package.rglob("*.py")):
            if DOMAIN not in path.read_text():
                continue  # a syntax tree takes far longer than a look
            for constant, value, text in constants(path):
                if isinstance(value, str) and value.startswith(DOMAIN) and not value.endswith("/"):
                    result.setdefault(value, (constant, text))
    return result


def managers() -> set[str]:
    """Return the values of the label `app.kubernetes.io/managed-by` in the operator's objects."""
    return {
        str(value.value)
        for node in ast.walk(ast.parse(OBJECTS.read_text()))
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and key.value == LABEL_MANAGED_BY and isinstance(value, ast.Constant)
    }


def labels() -> str:
    """Return the labels that the operator sets or reads."""
    own = {name: text for name, (constant, text) in domain_names().items() if constant.startswith("LABEL")}
    (manager,) = managers()
    rows = {**own, **{name: text.format(manager) for name, text in LABELS.items()}}
    return table(["Label", "Meaning"], [[f"`{name}`", sentence(text)] for name, text in rows.items()])


def annotations() -> str:
    """Return the annotations of the project's domain, and its pod condition."""
    return table(
        ["Name", "Meaning"],
        [
            [f"`{name}`" + (" (pod condition)" if "CONDITION" in constant else ""), sentence(text)]
            for name, (constant, text) in sorted(domain_names().items())
            if not constant.startswith("LABEL")
        ],
    )


def headers() -> str:
    """Return the HTTP headers that the router reads or sets."""
    rows = []
    answers = NAMES.read_text().partition("# --- Response headers")[2]
    for constant, value, text in constants(NAMES):
        if constant.startswith("HEADER_"):
            where = "answer" if f"{constant}:" in answers else "request"
            rows.append([f"`{value}`", where, sentence(text)])
    for group, text in (
        (session_key.NAMING_HEADERS, "Names the session; its value alone makes the key."),
        (session_key.SHARED_HEADERS, "Names a session that several conversations share: key with their start."),
        (session_key.CREDENTIALS, "16 bits of its hash keep the conversations of two callers apart; never logged."),
    ):
        rows += [[f"`{name.decode()}`", "request", text] for name in group]
    rows += [[f"`{name}`", where, text] for name, (where, text) in PLAIN_HEADERS.items()]
    return table(["Header", "In", "Meaning"], rows)


PORTS = {
    "PORT_ROUTER": (
        "router",
        "TCP",
        "[the APIs of OpenAI and Anthropic](api.md) for clients.",
    ),
    "PORT_ROUTER_ADMIN": (
        "router, picker",
        "TCP",
        "`/healthz`, `/readyz`, `/metrics`, `/table`, `/unmatched`, `/explain`, `/responses/purge` and `samples`.",
    ),
    "PORT_PEERS": (
        "router, picker",
        "UDP, TCP",
        "Datagrams between the routers and pickers of a namespace; requests whose answer another router keeps (TCP).",
    ),
    "PORT_PICKER": ("picker", "TCP", "Envoy's external processing (gRPC) for gateways, and gRPC health checks."),
    "PORT_PICKER_HEALTH": ("picker", "TCP", "gRPC health checks without TLS."),
    "PORT_OPERATOR_HEALTH": ("operator", "TCP", "`/healthz`."),
    "PORT_OPERATOR_METRICS": ("operator", "TCP", "`/metrics`."),
    "PORT_ENGINE": ("engine", "TCP", "The engine's HTTP API; `spec.engine.port` changes it."),
}


def ports() -> str:
    """Return the ports on which the programs listen."""
    settings = ROOT / "router" / "promptgroup_router" / "base" / "core_settings.py"
    result = {
        name: value for path in (NAMES, settings) for name, value, _ in constants(path) if re.match("PORT_", name)
    }
    return table(
        ["Port", "Program", "Protocol", "Serves"],
        [[f"`{value}`", *PORTS[name]] for name, value in sorted(result.items(), key=lambda item: int(str(item[1])))],
    )


def exit_statuses() -> str:
    """Return the exit statuses of `promptgroup`."""
    (statuses,) = (
        node.body
        for node in ast.parse(EXIT_STATUSES.read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == "ExitStatus"
    )
    return table(["Status", "Meaning"], [[f"`{value}`", sentence(text)] for _, value, text in _constants(statuses)])


def endpoints() -> str:
    """Return the paths that the router serves."""
    rows = [
        [
            f"`POST {path.decode()}`",
            "by its prompt, or by name" if item.cached else "by its model, or by name",
            "the replica with the session's cache" if item.cached else "the replica with the least load",
        ]
        for path, item in ENDPOINTS.items()
    ]
    return table(["Path", "Group", "Replica"], rows)


def lint_rules() -> str:
    """Return the rules of `promptgroup lint`."""
    return table(
        ["Rule", "Severity", "Finds", "Remedy"],
        [[f"`{rule.id}`", rule.severity.name.lower(), sentence(rule.title), sentence(rule.way_out)] for rule in RULES],
    )
