"""Settings for all tests."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("clipper", deadline=None)  # the first example pays for torch's lazy start
settings.load_profile("clipper")
os.environ["CLIPPER_OFFLINE"] = "1"  # no test downloads, except those that say so
