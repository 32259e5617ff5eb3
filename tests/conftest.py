"""What holds for all tests: none fails because the machine is busy."""

from hypothesis import settings

settings.register_profile("busy machine", deadline=None)
settings.load_profile("busy machine")
