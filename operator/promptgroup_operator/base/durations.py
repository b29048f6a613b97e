"""Durations as Go writes them (`300ms`, `1h30m`): what users of Kubernetes expect in a spec."""

import re
from datetime import timedelta

PATTERN = r"^([0-9]{1,6}(\.[0-9]{1,3})?(ms|s|m|h)){1,4}$"
"""Pattern of a duration field, which the schema carries. Bounded digits keep any date plus it within the calendar."""

_WHOLE = re.compile(PATTERN, re.ASCII)
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse(text: str) -> timedelta:
    """Return the duration that `text` names.

    Raises:
        ValueError: the text is not a duration.
    """
    if _WHOLE.fullmatch(text) is None:
        raise ValueError(f"{text!r} is no duration: write numbers with ms, s, m or h, as in 300ms or 1h30m")
    return timedelta(seconds=sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text)))
