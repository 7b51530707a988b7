"""Tables of results: the runs of each table, our figures from recorded runs, and published figures."""

from clipper.benchmarks.tables.catalogue import TABLES, table_named, table_shown, tables_of
from clipper.benchmarks.tables.layout import Column, Place, Row, Table
from clipper.benchmarks.tables.ledger import Ledger
from clipper.benchmarks.tables.selection import Selection
from clipper.benchmarks.tables.summary import CellResult, counts, deviations, gather, peculiarity, summarise

__all__ = [
    "TABLES",
    "CellResult",
    "Column",
    "Ledger",
    "Place",
    "Row",
    "Selection",
    "Table",
    "counts",
    "deviations",
    "gather",
    "peculiarity",
    "summarise",
    "table_named",
    "table_shown",
    "tables_of",
]  # fmt: skip
