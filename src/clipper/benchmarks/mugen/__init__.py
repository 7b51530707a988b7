"""MUGEN: clips of a game character, texts that say what it does, and which frame shows what.

Read top to bottom: `actions` (what can be done), `script` (who does what when), `art` and `scene` (how it looks),
`files` (clips on disk, MUGEN's own or drawn), `clips` (clips in memory), `task` (what a run learns from), `retrieval`
(how it is measured), `preview` (a look at them).
"""
