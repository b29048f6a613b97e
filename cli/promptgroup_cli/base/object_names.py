"""Names of Kubernetes objects."""

import argparse
import re

NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
"""A DNS subdomain (RFC 1123): what the API server takes as a name."""
MOST_OF_GROUP = 50
"""Characters of a PromptGroup's name at most; repeated here since the models that define it take long to import."""


def group_name(text: str) -> str:
    """Return the name of a PromptGroup.

    Raises:
        argparse.ArgumentTypeError: the API server would refuse it.
    """
    if not NAME.fullmatch(text) or len(text) > MOST_OF_GROUP:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a name of a PromptGroup: write at most {MOST_OF_GROUP} lower-case letters, digits and '-'"
        )
    return text
