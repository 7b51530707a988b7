"""Tables of results: their runs, the paper's figures, and the figures here."""

from clipper.benchmarks.tables.catalogue import TABLES, table_named, table_shown, tables_of
from clipper.benchmarks.tables.layout import Column, Place, Row, Table
from clipper.benchmarks.tables.ledger import Ledger
from clipper.benchmarks.tables.selection import Selection
from clipper.benchmarks.tables.summary import Entry, deviations, gather, summarise

__all__ = [
    "TABLES", "Column", "Entry", "Ledger", "Place", "Row", "Selection", "Table", "deviations", "gather",
    "summarise", "table_named", "table_shown", "tables_of",
]  # fmt: skip
