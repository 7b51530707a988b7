"""Data sets, a file each. `sources` finds and verifies files, `fetching` brings them, `catalogue` knows all sets."""
