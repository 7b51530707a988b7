"""A tutorial page as a Jupyter notebook: prose as it is, code as cells, shell commands behind an exclamation mark."""

from __future__ import annotations

import re

import nbformat


def notebook(markdown: str) -> str:
    """The text of a notebook with the same prose and code as a page.

    Args:
        markdown: the page.

    Returns:
        A notebook of format 4, as JSON.
    """
    cells = []
    for i, piece in enumerate(re.split(r"^(```(?:python|sh|\w+ title=)[^\n]*\n.*?^```)$", markdown, flags=re.S | re.M)):
        text = piece.strip()
        if i % 2:
            head, _, code = text.removesuffix("```").rstrip().partition("\n")
            cells.append(nbformat.v4.new_code_cell(_cell_of(head, code)))
        elif text:
            cells.append(nbformat.v4.new_markdown_cell(text))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"  # the same page gives the same notebook
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    made = nbformat.v4.new_notebook(cells=cells, metadata=kernel)
    nbformat.validate(made)
    return nbformat.writes(made)


def _cell_of(head: str, code: str) -> str:
    title = re.search(r'title="([^"]+)"', head)
    if title:
        return f"%%writefile {title[1]}\n{code}"
    if head.startswith("```sh"):
        return "\n".join(f"!{line}" for line in code.replace("\\\n", " ").splitlines())
    return code
