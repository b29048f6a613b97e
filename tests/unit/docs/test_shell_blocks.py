"""Commands that a reader copies from a page fit the manifests: files, labels, names and ports are there.

What needs no cluster is checked. test_pages.py holds the flags of `promptgroup`; here its commands are parsed as well,
where nothing in them is left to the reader.
"""

import re
import shlex
from pathlib import Path

import pytest

from promptgroup_cli.commands.size.flags import check
from sitegen import flags
from support.yamlfiles import documents

ROOT = Path(__file__).parents[3]
REFERENCE = (ROOT / "docs/reference/names.md").read_text()
FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?<=\n\n)(?:(?: {4,}|\t)\S.*\n(?:[ \t]*\n(?=(?: {4}|\t))|(?: {4}|\t).*\n)*)")
SHELL = {"bash", "console", "sh", "shell"}
TOPS = ("manifests", "charts", "crds", "lab", "e2e", "images", "scripts")
"""Folders of the repository that commands are given paths in."""
KINDS = {"deployment": "Deployment", "service": "Service", "svc": "Service", "daemonset": "DaemonSet"}
LOCAL = {"docs/tutorial/laptop.md", "docs/reference/commands.md", "docs/development/testing.md"}
"""Pages on which a program listens on the reader's own machine, or whose commands are examples of flags alone."""


def unmarked(line: str) -> str:
    """Return a command without a prompt in front."""
    return re.sub(r"^\$ ", "", line.strip())


def commands_of(text: str) -> list[str]:
    """Return the commands of a page's shell blocks; lines that a backslash continues are one."""
    blocks = [body for _, language, body in FENCED.findall(text) if language in SHELL]
    blocks += INDENTED.findall(FENCED.sub("\n", text))
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [unmarked(line) for line in lines if re.match(r"\s*(\$ )?[a-z]", line)]


PAGES = {
    path.relative_to(ROOT).as_posix(): commands_of(path.read_text())
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if "decisions" not in path.parts
}
COMMANDS = [(page, command) for page, commands in PAGES.items() for command in commands]


def objects() -> list[dict]:
    """Return the objects of the install and its samples."""
    return [
        each
        for path in sorted((ROOT / "manifests").rglob("*.yaml"))
        for each in documents(path.read_text())
        if isinstance(each, dict) and "metadata" in each
    ]


OBJECTS = objects()


def ports_of(kind: str, name: str) -> set[int]:
    """Return the ports of a Service, or those of the containers of a Deployment."""
    (found,) = [each for each in OBJECTS if each["kind"] == kind and each["metadata"]["name"] == name][:1] or (None,)
    if found is None:
        return set()
    if kind == "Service":
        return {each["port"] for each in found["spec"]["ports"]}
    containers = found["spec"]["template"]["spec"]["containers"]
    return {each["containerPort"] for container in containers for each in container.get("ports", [])}


def kubectl_problems(command: str) -> list[str]:
    """Return what of a command of kubectl is not there: labels, names of the install's objects, their ports."""
    selectors = re.findall(r"\s(?:-l|--selector)[ =]([\w./-]+)", command)
    found = [f"{each} is not in docs/reference/names.md" for each in selectors if f"`{each}`" not in REFERENCE]
    for kind, name in re.findall(rf"(?<![\w/])({'|'.join(KINDS)})[/ ](promptgroup-[\w.-]*)", command):
        if name not in {each["metadata"]["name"] for each in OBJECTS if each["kind"] == KINDS[kind]}:
            found.append(f"no {kind} {name}")
    forward = re.search(r"port-forward (?:-n \S+ )?(?:(\w+)/)?([\w.-]+) (?:\d+:)?(\d+)", command)
    if forward and forward[1] in KINDS and int(forward[3]) not in ports_of(KINDS[forward[1]], forward[2]):
        found.append(f"{forward[1]}/{forward[2]} has no port {forward[3]}")
    if re.search(r"\bpod/[a-z-]+-[0-9a-f]{8}-[a-z0-9]{5}(?![\w-])", command):
        found.append("a pod of a revision's Deployment has two suffixes: its ReplicaSet's and its own")
    return found


def problems(page: str, command: str, forwarded: set[str]) -> list[str]:
    """Return what of a command is not there.

    Args:
        page: the page that it is on.
        command: the command.
        forwarded: local ports that commands of the page forward.
    """
    paths = re.findall(rf"(?<![\w./-])((?:{'|'.join(TOPS)})/[\w./-]*\w)", command)
    found = [f"no file {path}" for path in paths if not (ROOT / path).exists()]
    if command.startswith("kubectl "):
        found += kubectl_problems(command)
    if page not in LOCAL:
        found += [
            f"nothing on the page forwards port {port}"
            for port in re.findall(r"(?:127\.0\.0\.1|localhost):(\d+)", command)
            if port not in forwarded
        ]
    for host, port in re.findall(r"curl [^|]*?https?://([\w.-]+):(9090|9002|9003|8081|8082)\b", command):
        if host not in ("127.0.0.1", "localhost") and "prometheus" not in host:
            found.append(f"network policies close {host}:{port}: forward it")
    return found


def forwarded(commands: list[str]) -> set[str]:
    """Return the local ports that commands forward."""
    return {
        port
        for command in commands
        if "port-forward" in command
        for port in re.findall(r"(?<![\w.-])(\d{2,5})(?=:\d+|\s|$)", command.partition("port-forward")[2])
    }


@pytest.mark.parametrize("page", [page for page, commands in PAGES.items() if commands])
def test_what_commands_of_a_page_name_is_there(page):
    commands = PAGES[page]
    ports = forwarded(commands)
    assert [(command, each) for command in commands for each in problems(page, command, ports)] == []


def test_ports_that_pages_tell_readers_to_ask_in_a_sentence_are_forwarded():
    """A table's cell or a sentence may hold a command, too."""
    closed = re.compile(r"`curl [^`]*?(?:[A-Z_]{3,}|promptgroup-\w+[\w.]*):(?:9090|8081|8082|9003)")
    texts = {path: path.read_text() for path in (ROOT / "docs").rglob("*.md")}
    assert [path for path, text in texts.items() if closed.search(text)] == []


@pytest.mark.parametrize(
    "command",
    sorted(
        {
            command.partition("  #")[0].partition(" > ")[0].partition(" | ")[0]
            for _, command in COMMANDS
            if command.startswith("promptgroup ") and not re.search(r"\.\.\.|\[|--from-prometheus", command)
        }
    ),
)
def test_a_command_line_of_promptgroup_is_whole(command):
    """The parser takes it: nothing that is needed is left out. `size` tells by itself what belongs together.

    Synopses with brackets are no commands, and `...` stands for what the reader adds.
    """
    words = shlex.split(command.rstrip(" &"), comments=True)
    parser = flags.command_parsers().get(words[1])
    assert parser is not None, f"there is no command {words[1]}"
    arguments = parser.parse_args(words[2:])
    if words[1] == "size":
        check(arguments)


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        ("kubectl apply -f manifests/samples/nothing.yaml", True),
        ("kubectl apply -f manifests/samples/first.yaml", False),
        ("kubectl get pods -l promptgroup.dev/groups=a", True),
        ("kubectl get pods -l promptgroup.dev/group=a", False),
        ("kubectl rollout status deployment/promptgroup-routers", True),
        ("kubectl port-forward service/promptgroup-router 9090", True),
        ("kubectl port-forward deployment/promptgroup-router 9090", False),
        ("kubectl port-forward pod/support-9f2c61d0-abcde 8000", True),
        ("curl http://POD_IP:8081/healthz", True),
        ("curl http://127.0.0.1:9090/table", False),
        ("promptgroup probe 127.0.0.1:8000 --model m --copy-to 127.0.0.1:8001", True),
    ],
)
def test_a_command_that_does_not_fit_is_found(command, wrong):
    assert bool(problems("docs/index.md", command, {"8000", "9090"})) is wrong
