"""Hypothesis for all tests: no deadline, since a busy machine is no fault; how to repeat a failure is printed.

The suite tries the same examples everywhere, so that it says something of the change that it runs for. New ones are
looked for with `--hypothesis-profile=search`.
"""

from hypothesis import settings

settings.register_profile("project", deadline=None, print_blob=True, derandomize=True)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile("project")
