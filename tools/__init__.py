"""What builds the documentation and the package; no part of the library."""
