"""How a formula is written, compiled and evaluated; `Formula` is the face of all this."""
