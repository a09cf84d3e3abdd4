"""Format the fleet's report as Markdown and as one self-contained HTML file: no script, no font, no network.

Names and reasons come from others. In either form they are plain text, whatever they contain.

Tests: tests/unit/cli/test_fleetreport.py.
"""

import html

from muster.answers.fleet_text import CUT, figures, period, remarks, tables
from muster.answers.fleetreported import FleetReport
from muster.answers.text_parts import percent
from muster.cli import show

LISTED_JOBS = 100
LISTED_NODES = 50
_MARKUP = "\\`*_[]|~#$"
_COLOURS = {
    "compute": "#2e7d32",
    "communication": "#66bb6a",
    "inputWait": "#c0a000",
    "checkpointStall": "#00838f",
    "lostWork": "#c62828",
    "undetected": "#e53935",
    "held": "#8e24aa",
    "requeued": "#ef6c00",
    "restarting": "#f9a825",
    "reclaim": "#fdd835",
    "burnIn": "#1565c0",
    "starting": "#42a5f5",
    "finishing": "#90caf9",
}
_OTHER = "#9e9e9e"
_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0 2rem; width: 100%; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid #8884; font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.5rem; }
dt { font-weight: 600; } dd { margin: 0; }
.bar { display: flex; height: 1.6rem; border-radius: .3rem; overflow: hidden; }
.bar span { min-width: 2px; }
.notes { color: GrayText; }
"""


def markdown(it: FleetReport) -> str:
    """Format the report as GitHub's Markdown."""
    lines = [f"# The fleet, {_marked(period(it))}", ""]
    lines += [f"- **{_marked(name)}**: {_marked(value)}" for name, value in figures(it)]
    for title, heads, rows in tables(it, LISTED_JOBS, LISTED_NODES):
        lines += [
            "",
            f"## {_marked(title.capitalize())}",
            "",
            _row(heads),
            _row(["---", *["---:"] * (len(heads) - 1)], raw=True),
        ]
        lines += [_row(row) for row in rows]
    if any(job.counted_share < 1 for job in it.job_details[:LISTED_JOBS]):
        lines += ["", _marked(CUT)]
    notes = remarks(it)
    lines += ["", *(f"> {_marked(line)}  " for line in notes)] if notes else []
    return "\n".join(lines) + "\n"


def page(it: FleetReport) -> str:
    """Format the report as HTML."""
    facts = "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in figures(it))
    parts = [f"<h1>The fleet, {_text(period(it))}</h1>", f"<dl>{facts}</dl>", _bar(it)]
    for title, heads, rows in tables(it, LISTED_JOBS, LISTED_NODES):
        head = "".join(f'<th scope="col">{_text(column)}</th>' for column in heads)
        body = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>\n" for row in rows)
        parts.append(
            f"<table><caption>{_text(title.capitalize())}</caption><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"
        )
    if any(job.counted_share < 1 for job in it.job_details[:LISTED_JOBS]):
        parts.append(f"<p>{_text(CUT)}</p>")
    parts += [f'<p class="notes">{_text(line)}</p>' for line in remarks(it)]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width"><title>Goodput of the fleet</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def _bar(it: FleetReport) -> str:
    """Draw all buckets side by side; the table below has the same figures."""
    spans = "".join(
        f'<span style="flex:{bucket.gpu_seconds};background:{_COLOURS.get(bucket.bucket, _OTHER)}" '
        f'title="{_text(bucket.bucket)} {_text(percent(bucket.share))}"></span>'
        for bucket in it.buckets
        if bucket.gpu_seconds
    )
    words = ", ".join(f"{bucket.bucket} {percent(bucket.share)}" for bucket in it.buckets if bucket.gpu_seconds)
    return f'<div class="bar" role="img" aria-label="{_text(words)}">{spans}</div>' if spans else ""


def _text(words: str) -> str:
    return html.escape(show.on_one_line(words))


def _marked(words: str) -> str:
    """Escape a text so that nothing in it is markup."""
    plain = show.on_one_line(words).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{c}" if c in _MARKUP else c for c in plain)


def _row(cells: list[str], *, raw: bool = False) -> str:
    return f"| {' | '.join(cells if raw else map(_marked, cells))} |"
