"""How a lattice is built and what is worked out on it; `Lattice` is the face of all this."""
