"""What is done to objects at rest without anybody writing to them."""

from collections.abc import Callable, Mapping

from promptgroup_local.kubectl import wait_for


def wait_unwritten(versions: Callable[[], Mapping[str, str]], act: Callable[[], object], subject: str) -> None:
    """Wait until something is done in which no object is written.

    The last writes before objects are at rest may come late on a busy machine. Whoever writes each time is found out.

    Args:
        versions: the resourceVersion of each object.
        act: does it; it is done again where something was written.
        subject: what is waited for.

    Raises:
        TimeoutError: something was written each time.
    """
    changed: set[str] = set()

    def unwritten() -> bool | None:
        before = versions()
        act()
        after = versions()
        changed.clear()
        changed.update(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        return None if changed else True

    wait_for(unwritten, subject, lambda: sorted(changed))
