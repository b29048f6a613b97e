"""Names of Kubernetes objects."""

import argparse

from promptgroup_router.contract.names import is_object_name

MOST_OF_GROUP = 50
"""Characters of a PromptGroup's name at most; repeated here since the models that define it take long to import."""


def group_name(text: str) -> str:
    """Return the name of a PromptGroup.

    Raises:
        argparse.ArgumentTypeError: the API server would refuse it.
    """
    if not is_object_name(text) or len(text) > MOST_OF_GROUP:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a name of a PromptGroup: write at most {MOST_OF_GROUP} lower-case letters, digits and '-'"
        )
    return text
