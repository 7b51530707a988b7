"""MUGEN: clips of a game character, texts that say what it does, and which frame shows what.

Read top to bottom: `world` (actions, scripts, art, frames), `clips` (clips in memory, drawn and shown), `files` (clips
on disk, MUGEN's own or drawn), `benchmark` (what a run learns from, and how it is measured).
"""
