"""Pages, figures and tables made of what runs wrote: views of artefacts, which load no data and prune nothing."""

from clipper.report.inspector import write_inspector
from clipper.report.run_page import write_run_page
from clipper.report.table_page import write_table

__all__ = ["write_inspector", "write_run_page", "write_table"]
