"""Data sets in files: `sources` finds, verifies and fetches them, `reading` and `pickles` read untrusted files."""
