"""A race of Clipper and other frameworks: one machine, the same data, network and seconds for all of them."""
