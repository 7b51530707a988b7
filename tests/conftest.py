"""Settings for all tests."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("clipper", deadline=None)  # the first example pays for torch's lazy start
settings.load_profile("clipper")
