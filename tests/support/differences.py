"""What kubectl finds to change: nothing, once no controller writes the status of an object between its reads."""

from promptgroup_local.kubectl import Kubectl, wait_for


def wait_no_difference(kube: Kubectl, *flags: str, stdin: str | None = None) -> None:
    """Wait until `kubectl diff` with these flags finds no difference.

    It reads each object twice, as it stands and as it would be. A status that is written in between is a difference.
    """
    last = ""

    def equal() -> bool | None:
        nonlocal last
        compared = kube.run("diff", *flags, stdin=stdin, check=False)
        last = compared.stdout + compared.stderr
        return True if (compared.returncode, compared.stdout) == (0, "") else None

    wait_for(equal, f"kubectl diff {' '.join(flags)} to find nothing", lambda: last)
