"""Many reports side by side: areas down, reports across.

For: what a framework's documentation would publish of its backends, in a terminal, as Markdown, or as a page of HTML that fetches nothing.
Every form has the same cells. Not for: single clauses (`comparison.py`) or whether a report holds, which the caller says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from rich.table import Table
from rich.text import Text

from reports.model import Report
from reports.untrusted_text import markdown, plain, printable

_FAILED = ("fail", "flaky", "harness-error", "known-failure", "waived")
_STYLES = {"good": "green", "bad": "bold red", "none": "dim", "partly": "yellow"}


@dataclass(frozen=True)
class Cell:
    """What one report says of one area. `kind` is good (all MUSTs that are supported passed), bad (something failed), partly, or none."""

    text: str
    kind: str


@dataclass(frozen=True)
class Column:
    """One report. `holds` is the answer of `verify`."""

    title: str
    subtitle: str
    date: str
    status: str
    holds: bool
    cells: dict[str, Cell]
    levels: str

    def shown(self, cell: Cell) -> Cell:
        """The cell as it is worth showing: nothing of a report that does not hold looks good."""
        return cell if self.holds or cell.kind == "bad" else Cell(cell.text, "none")


@dataclass(frozen=True)
class Matrix:
    """The whole table: `areas` are names and titles, of every area that a report has."""

    areas: tuple[tuple[str, str], ...]
    columns: tuple[Column, ...]

    def rows(self) -> list[tuple[str, list[Cell]]]:
        """Heading and cells of every row: first what each report is worth (`SUMMARY_ROWS` of them), then the areas."""
        nothing = Cell("–", "none")
        summary: dict[str, list[Cell]] = {
            "report holds": [Cell("yes" if column.holds else "NO", "good" if column.holds else "bad") for column in self.columns],
            "status": [
                column.shown(Cell(column.status, "good" if column.status == "hardware" else "partly")) for column in self.columns
            ],
            "levels attained": [
                column.shown(Cell(column.levels, "good" if column.levels != "none" else "none")) for column in self.columns
            ],
        }
        areas = {
            f"{name} {title}": [column.shown(column.cells.get(name, nothing)) for column in self.columns]
            for name, title in self.areas
        }
        return [*summary.items(), *areas.items()]


SUMMARY_ROWS = 3
LEGEND = (
    "Passed of the clauses that apply; ✗ failed, waived or known to fail; ○ without a verdict; unsupported clauses do not apply. What a"
    " report says that does not hold counts for nothing."
)


def make_matrix(reports: Sequence[tuple[Report, bool]]) -> Matrix:
    """The matrix of reports, each with whether it holds."""
    areas: dict[str, str] = {}
    for report, _ in reports:
        titles = {area.name: area.title for area in report.areas}
        for clause in report.clauses:
            name = clause.id.partition("-")[0]
            areas.setdefault(name, printable(titles.get(name, ""), longest=60))
    return Matrix(tuple(areas.items()), tuple(_column(report, holds) for report, holds in reports))


def _column(report: Report, holds: bool) -> Column:
    counts: dict[str, Counter[str]] = {}
    for clause in report.clauses:
        counts.setdefault(clause.id.partition("-")[0], Counter())[clause.outcome] += 1
    attained = [level.name for level in report.verdict.levels if level.state == "attained"]
    return Column(
        title=printable(report.declared.product or report.backend.name, longest=40),
        subtitle=", ".join(
            filter(
                None,
                (
                    printable(report.declared.vendor, longest=40),
                    printable(report.backend.name, longest=40),
                    printable(f"torch {report.host.torch}", longest=40),
                    f"contract {printable(report.suite.contract_revision, longest=20)}",
                ),
            )
        ),
        date=report.run.started[:10],
        status=report.verdict.status,
        holds=holds,
        cells={name: _cell(count) for name, count in counts.items()},
        levels=", ".join(attained) or "none",
    )


def _cell(count: Counter[str]) -> Cell:
    applies = count.total() - count["unsupported"]
    failed = sum(count[outcome] for outcome in _FAILED)
    unknown = applies - failed - count["pass"]
    if not applies:
        return Cell("unsupported", "none")
    text = f"{count['pass']}/{applies}" + (f" ✗{failed}" if failed else "") + (f" ○{unknown}" if unknown else "")
    return Cell(text, "bad" if failed else "none" if unknown == applies else "partly" if unknown else "good")


def to_terminal(matrix: Matrix) -> Table:
    """As a rich table."""
    table = Table(caption=LEGEND, caption_justify="left")
    table.add_column("area")
    for column in matrix.columns:
        table.add_column(Text.assemble(plain(column.title, "bold"), "\n", plain(f"{column.subtitle}, {column.date}", "dim")))
    for heading, cells in matrix.rows():
        table.add_row(plain(heading), *(plain(cell.text, _STYLES[cell.kind]) for cell in cells))
    return table


def to_markdown(matrix: Matrix) -> str:
    """As a table in Markdown, ending in a newline."""
    head = ["area", *(f"{column.title} ({column.subtitle}, {column.date})" for column in matrix.columns)]
    lines = [_line(head), _separator(len(head))]
    lines += [_line([heading, *(cell.text for cell in cells)]) for heading, cells in matrix.rows()]
    return "\n".join([*lines, "", LEGEND]) + "\n"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(markdown(cell) for cell in cells)} |"


def _separator(count: int) -> str:
    return "|" + "---|" * count


_STYLE = """
:root { color-scheme: light dark; --line: #8886; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { border-bottom: 1px solid var(--line); padding: .35rem .7rem; text-align: left; vertical-align: top; white-space: nowrap; }
thead th { white-space: normal; min-width: 7rem; }
th small { display: block; font-weight: normal; opacity: .75; overflow-wrap: break-word; }
th span { white-space: nowrap; }
tbody th { font-weight: normal; position: sticky; left: 0; background: Canvas; }
.good { color: light-dark(#14652c, #7ee2a0); } .bad { color: light-dark(#a5160b, #ff9d93); font-weight: bold; }
.partly { color: light-dark(#7a5300, #f0c15c); } .none { opacity: .65; }
.summary td { white-space: normal; }
.summary tr:last-child > * { border-bottom-width: 2px; }
@media (max-width: 40rem) { th, td { padding: .3rem .5rem; } tbody th { white-space: normal; min-width: 6rem; max-width: 7rem; } }
@media print {
  @page { size: landscape; margin: 1cm; }
  body { margin: 0; max-width: none; font-size: 8pt; }
  .scroll { overflow: visible; }
  th, td { padding: .15rem .3rem; white-space: normal; }
  thead th { min-width: 0; }
  tbody th { position: static; }
  tr { break-inside: avoid; }
}
"""


def to_html(matrix: Matrix) -> str:
    """As a page that fetches nothing, ending in a newline."""
    heads = "".join(
        f"<th>{escape(column.title)}<small>{escape(column.subtitle)}, <span>{escape(column.date)}</span></small></th>"
        for column in matrix.columns
    )
    rows = [f"<tr><th>{escape(heading)}</th>{''.join(map(_html_cell, cells))}</tr>" for heading, cells in matrix.rows()]
    bodies = ('<tbody class="summary">', *rows[:SUMMARY_ROWS], "</tbody>", "<tbody>", *rows[SUMMARY_ROWS:], "</tbody>")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Conformance of {len(matrix.columns)} backends</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>Conformance, backends by areas</h1>
<div class="scroll"><table>
<thead><tr><th>area</th>{heads}</tr></thead>
{chr(10).join(bodies)}
</table></div>
<p>{escape(LEGEND)}</p>
</body>
</html>
"""


def _html_cell(cell: Cell) -> str:
    return f'<td class="{cell.kind}">{escape(cell.text)}</td>'
