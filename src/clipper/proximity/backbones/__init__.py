"""Architectures whose published ImageNet weights Clipper reads; none of them knows where the weights come from."""
