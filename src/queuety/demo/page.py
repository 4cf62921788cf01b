"""The report as one HTML page that needs nothing else. Whatever comes from documents is escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

SHOWN_WORDS: Final = 8
WORDS_A_MINUTE: Final = 230


def page(state: Mapping[str, Any], *, workflow_id: int) -> str:
    """The page of a run whose documents are indexed and summarised."""
    documents: Sequence[Mapping[str, Any]] = state["documents"]
    folder = Path(state["folder"]).name or state["folder"]
    words = sum(document["words"] for document in documents)
    sentences = sum(document["sentences"] for document in documents)
    longest = max(document["words"] for document in documents)
    contents = "\n".join(
        f'<li><a href="#document-{number}">{escape(document["title"])}</a>'
        f'<span class="count">{document["words"]:,}</span></li>'
        for number, document in enumerate(documents, 1)
    )
    articles = "\n".join(
        _article(number, document, state["summaries"].get(document["path"], ()), longest)
        for number, document in enumerate(documents, 1)
    )
    return _PAGE.format(
        title=escape(f"Report on {folder}"),
        style=_STYLE,
        folder=escape(state["folder"]),
        documents=_counted(len(documents), "document"),
        words=_counted(words, "word"),
        sentences=_counted(sentences, "sentence"),
        contents=contents,
        articles=articles,
        left_out=_left_out(state.get("left_out", ())),
        run=workflow_id,
        attempt=_attempt(state.get("summarised_on_attempt", 1)),
    )


def _article(number: int, document: Mapping[str, Any], summary: Sequence[str], longest: int) -> str:
    key_words = "".join(f"<li>{escape(word)}</li>" for word, _ in document["key_words"][:SHOWN_WORDS])
    said = "".join(f"<p>{escape(sentence)}</p>" for sentence in summary)
    minutes = max(1, round(document["words"] / WORDS_A_MINUTE))
    return (
        f'<article id="document-{number}">\n'
        f"<h2>{escape(document['title'])}</h2>\n"
        f'<p class="facts"><code>{escape(document["path"])}</code> · {_counted(document["words"], "word")} · '
        f"{_counted(document['sentences'], 'sentence')} · {_counted(minutes, 'minute')} to read</p>\n"
        f'<meter max="{longest}" value="{document["words"]}" title="its length beside the longest">'
        f"{document['words']}</meter>\n"
        f'<ul class="words" aria-label="Key words">{key_words}</ul>\n'
        f"<blockquote>{said}</blockquote>\n"
        f'<p class="up"><a href="#top">to the top</a></p>\n'
        f"</article>"
    )


def _left_out(files: Sequence[Mapping[str, str]]) -> str:
    if not files:
        return ""
    items = "".join(f"<li><code>{escape(one['path'])}</code>: {escape(one['reason'])}</li>" for one in files)
    return f'<section id="left-out"><h2>Left out</h2><ul>{items}</ul></section>'


def _attempt(number: int) -> str:
    if number == 1:
        return "The summaries were made at the first attempt."
    return f"The summaries are those of attempt {number}: the one before was cut short, and nothing of it was kept."


def _counted(count: int, what: str) -> str:
    """How many there are.

    >>> _counted(1, "word"), _counted(1234, "word")
    ('1 word', '1,234 words')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


_STYLE: Final = """
:root { color-scheme: light dark; --ground: #fbfaf7; --card: #fff; --ink: #22211f; --faint: #6b675f; --line: #e3dfd6;
  --accent: #8a3b12; --tint: #f4ece2; }
@media (prefers-color-scheme: dark) { :root { --ground: #16171a; --card: #1e2024; --ink: #e7e4dd; --faint: #a09b91;
  --line: #33363c; --accent: #eba77c; --tint: #2b2723; } }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 17px/1.6 Georgia, "Iowan Old Style", serif; }
main, header, footer { max-width: 46rem; margin: 0 auto; padding: 0 1.25rem; overflow-wrap: anywhere; }
header { padding-top: 3rem; }
h1 { font-size: 2.2rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.35rem; line-height: 1.3; margin: 0; }
a { color: var(--accent); text-underline-offset: .2em; }
code { font: .85em ui-monospace, Menlo, Consolas, monospace; }
.facts, .count, .up, footer { color: var(--faint); font: 14px/1.5 system-ui, sans-serif; }
.totals { display: flex; flex-wrap: wrap; gap: .25rem 1.5rem; padding: 0; list-style: none; color: var(--faint);
  font: 15px/1.5 system-ui, sans-serif; }
nav { margin: 2rem 0; padding: 1rem 1.5rem; background: var(--tint); border-radius: .6rem; }
nav h2 { font-size: 1rem; }
nav ol { margin: .5rem 0 0; padding-left: 1.5rem; }
nav li a { margin-right: .6rem; }
article, #left-out { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: 1.5rem;
  margin: 0 0 1.5rem; scroll-margin-top: 1rem; }
.facts { margin: .35rem 0 .6rem; }
meter { width: 100%; height: .6rem; }
.words { display: flex; flex-wrap: wrap; gap: .4rem; padding: 0; margin: .9rem 0; list-style: none; }
.words li { background: var(--tint); border-radius: 1rem; padding: .1rem .7rem; font: 14px/1.6 system-ui, sans-serif; }
blockquote { margin: 0; padding-left: 1rem; border-left: 3px solid var(--accent); }
blockquote p { margin: 0 0 .6rem; }
.up { margin: .8rem 0 0; text-align: right; }
footer { padding-bottom: 3rem; }
@media print { nav, .up { display: none; } article { break-inside: avoid; } }
"""

_PAGE: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body id="top">
<header>
<h1>{title}</h1>
<p class="facts"><code>{folder}</code></p>
<ul class="totals"><li>{documents}</li><li>{words}</li><li>{sentences}</li></ul>
</header>
<main>
<nav aria-label="Contents">
<h2>Contents</h2>
<ol>
{contents}
</ol>
</nav>
{articles}
{left_out}
</main>
<footer><p>Made by run {run} of the workflow <code>report</code>: index, summarise, report. {attempt}</p></footer>
</body>
</html>
"""
