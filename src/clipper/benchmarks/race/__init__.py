"""A comparison of Clipper with other frameworks on one machine: same data, same network, same time limit."""
