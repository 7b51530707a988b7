"""VQAR: scenes of objects in boxes, a knowledge base, and sentences that objects abide by.

Read top to bottom: `knowledge` (names, relations, ontology), `scenes` (objects and how they lie to one another),
`generated` (scenes made here), `files` (VQAR's own scenes), `sentences` (what is known of an object), `task` (what a
run learns from).
"""
