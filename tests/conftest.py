"""Settings for all tests."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("clipper", deadline=None)  # the first example pays for torch's lazy start
settings.register_profile("thorough", deadline=None, max_examples=1_000)  # make check
settings.register_profile("repeatable", deadline=None, derandomize=True, database=None)  # the same examples every time
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "clipper"))
os.environ["CLIPPER_OFFLINE"] = "1"  # no test downloads, except those that say so
