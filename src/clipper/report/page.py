"""A self-contained page: figures and tables in one HTML file that opens from disk, without a network."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path

from clipper.files import make_folder, written_whole

_STYLE = """
:root { color-scheme: light; }
body { margin: 3rem auto; max-width: 62rem; padding: 0 1.5rem; color: #1b2733; background: #fff;
       font: 16px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 1.7rem; margin: 0 0 .3rem; } h2 { font-size: 1.15rem; margin: 2.6rem 0 .6rem; }
p { max-width: 44rem; } .lead { color: #52606d; margin-top: 0; }
table { border-collapse: collapse; margin: 1rem 0; } th, td { padding: .35rem .9rem; text-align: right; }
th:first-child, td:first-child { text-align: left; white-space: nowrap; }
dl { display: grid; grid-template-columns: max-content auto; gap: .1rem 1rem; font-size: .9rem; }
.wide { overflow-x: auto; } .results td { white-space: nowrap; }
.results td, .results th { line-height: 1.3; padding: .35rem .2rem .35rem .45rem; vertical-align: top; }
.results th { vertical-align: bottom; } .results small { font-size: .72rem; letter-spacing: -.01em; }
.results small { color: #52606d; } .results small.paper { color: #c2703d; }
dt { font-weight: 600; } dd { margin: 0; color: #52606d; }
 th { border-bottom: 2px solid #1b2733; font-weight: 600; }
td { border-bottom: 1px solid #dfe6ea; font-variant-numeric: tabular-nums; }
figure { margin: 1rem 0; } figure svg { max-width: 100%; height: auto; }
figcaption { color: #52606d; font-size: .9rem; max-width: 44rem; }
"""


def html_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column is text."""
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def paragraphs(texts: Sequence[str]) -> str:
    """Text, one paragraph each."""
    return "".join(f"<p>{html.escape(text)}</p>" for text in texts)


def terms(meanings: Mapping[str, str]) -> str:
    """Words and what they mean."""
    pairs = "".join(f"<dt>{html.escape(word)}</dt><dd>{html.escape(text)}</dd>" for word, text in meanings.items())
    return f"<dl>{pairs}</dl>"


def figure(svg: str, caption: str) -> str:
    """A figure with its caption; `svg` is trusted."""
    return f"<figure>{svg}<figcaption>{html.escape(caption)}</figcaption></figure>"


def write_page(path: Path, title: str, lead: str, sections: Sequence[tuple[str, str]]) -> None:
    """Write a page; `sections` are headings with their HTML."""
    body = "".join(f"<section><h2>{html.escape(heading)}</h2>{content}</section>" for heading, content in sections)
    document = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>'
        f'<body><h1>{html.escape(title)}</h1><p class="lead">{html.escape(lead)}</p>{body}</body></html>'
    )
    make_folder(path.parent)
    with written_whole(path, replace=True) as temporary:
        temporary.write_text(document, encoding="utf-8")
