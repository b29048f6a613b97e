"""Hypothesis for all tests: no deadline, since a busy machine is no fault; how to repeat a failure is printed."""

from hypothesis import settings

settings.register_profile("project", deadline=None, print_blob=True)
settings.load_profile("project")
