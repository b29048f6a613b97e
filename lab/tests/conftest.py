"""No deadline, since a busy machine is no fault, and the same examples each time: as `tests/conftest.py` has it."""

from hypothesis import settings

settings.register_profile("lab", deadline=None, print_blob=True, derandomize=True)
settings.load_profile("lab")
