"""Numbers of bytes as Kubernetes writes them (`64Mi`)."""

import re

PATTERN = r"^[1-9][0-9]{0,3}(Ki|Mi|Gi)$"
"""Pattern of a size field, which the schema carries: a subset of what a quantity may be."""

_WHOLE = re.compile(PATTERN, re.ASCII)
_SHIFT = {"Ki": 10, "Mi": 20, "Gi": 30}


def parse(text: str) -> int:
    """Return the bytes that `text` names.

    Raises:
        ValueError: the text is not a size.
    """
    if _WHOLE.fullmatch(text) is None:
        raise ValueError(f"{text!r} is no size: write a number of at most four digits with Ki, Mi or Gi, as in 64Mi")
    return int(text[:-2]) << _SHIFT[text[-2:]]
