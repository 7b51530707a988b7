"""VQAR: scenes of objects in boxes, a knowledge base, and sentences that objects abide by.

Read top to bottom: `knowledge` (names, relations, ontology, sentences), `scenes` (objects and how they lie to one
another, generated ones too), `files` (VQAR's own scenes), `benchmark` (what a run learns from).
"""
