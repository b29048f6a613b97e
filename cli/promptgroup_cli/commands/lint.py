"""`promptgroup lint`: find what breaks prefix caching in prompts, requests, PromptGroups and logs."""

import argparse

from promptgroup_cli.base.errors import ExitStatus, InputError
from promptgroup_cli.lint.finding import Severity
from promptgroup_cli.lint.linter import Linter
from promptgroup_cli.lint.subject import LintSubject, Origin, sent_prompt
from promptgroup_cli.reach import inputs
from promptgroup_cli.reach.files import shown
from promptgroup_cli.reach.inputs import InputFormat, InputText
from promptgroup_cli.render import lint_output


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    linter = Linter(arguments.block_size, arguments.show)
    for name in arguments.files:
        _see(linter, name, arguments.format)
    report = linter.report()
    print(lint_output.FORMS[arguments.output](report))
    failed = report.worst is not None and report.worst >= Severity[arguments.fail_on.upper()]
    return ExitStatus.NEGATIVE if failed else ExitStatus.OK


def _see(linter: Linter, name: str, given: InputFormat | None) -> None:
    """Lint one file."""
    read = 0
    with inputs.opened(name, given) as content:
        if isinstance(content, InputText):
            _see_declared(linter, shown(name), content)
            return
        problem = ""
        for request in content:
            if request.ask is not None:
                linter.see(sent_prompt(shown(name), request.line, request.ask))
                read += 1
            else:
                linter.unreadable(shown(name), request.line, request.problem)
                problem = problem or f"{shown(name)}:{request.line}: {request.problem}"
    if not read:
        raise InputError(problem or f"{shown(name)}: it has no request")


def _see_declared(linter: Linter, name: str, content: InputText) -> None:
    """Lint the declared prompts of a file, and the pod templates beside them."""
    if content.format is InputFormat.PROMPT:
        linter.see(LintSubject(name, 1, Origin.PROMPT, "", content.content, "", lines=True))
        return
    # YAML and the models of the CRD take a third of a second to import, which prompts and requests do not wait for
    from promptgroup_cli.rehearsal import manifest, yaml_positions  # noqa: PLC0415

    try:
        found = manifest.declared_prompts(content.content, "default")
    except manifest.ManifestError as error:
        raise InputError(f"{name}: {error}") from None
    places = yaml_positions.system_places(content.content, len(found))
    templates = yaml_positions.template_lines(content.content, len(found))
    for each, (line, lines), template in zip(found, places, templates, strict=True):
        prompt, secret = each.text.prompt, each.text.secret
        if prompt.size:  # a host may declare none
            linter.see(
                LintSubject(name, line, Origin.MANIFEST, "", prompt.system, prompt.tools, lines=lines, secret=secret)
            )
        faults, nulls = manifest.template_faults(each.template), manifest.template_nulls(each.template)
        linter.template(name, template, faults, nulls)
