"""How many examples Hypothesis tries where a property wants another number than the profile has."""

from typing import Any

from hypothesis import settings

ALL = 100
"""Examples of the profile `project`, which `make integration` runs."""


def examples(count: int, **more: Any) -> settings:
    """Return settings with so many examples, and with the profile's share of them: a tenth in `make check`."""
    return settings(max_examples=max(1, count * settings().max_examples // ALL), **more)
