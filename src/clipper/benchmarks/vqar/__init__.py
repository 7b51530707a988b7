"""VQAR: scenes of objects in boxes, a knowledge base, and true sentences about the objects.

Read in this order: `knowledge` (names, relations, ontology, sentences), `scenes` (objects and their positions, also
generated ones), `files` (VQAR's own scenes), `benchmark` (samples, networks and evaluation).
"""
