"""How a logic program is written out for clingo, run, and read back; `Program` is the face of all this."""
