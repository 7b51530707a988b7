"""HTML pages, figures and tables from recorded runs. Nothing here loads data sets, prunes or trains."""

from clipper.report.inspector import write_inspector
from clipper.report.run_page import write_run_page
from clipper.report.table_page import write_table

__all__ = ["write_inspector", "write_run_page", "write_table"]
