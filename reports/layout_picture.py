"""Who owns which token, drawn.

For: a picture of a parallel layout, in the terminal and as SVG, with padding told from tokens. Not for: computing the layout
(`harness.routed_experts.layout`) or reading the command line (`layout_command.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.routed_experts import ParallelLayout, RowKind, RowRun

_MOST_CELLS = 32
"""Ranks with more rows than this are drawn run by run instead of row by row."""
_COLOURS = ("#4477aa", "#ee6677", "#228833", "#aa3377", "#66a0c8", "#b8860b")
"""One a sequence, round and round; told apart by readers who do not see red and green alike."""
_PADDING_COLOUR = "#8a8a8a"
_CELL, _ROW, _LABEL, _BAR = 38, 34, 96, 1100  # SVG units: cell width, row height, width of the labels, width of a bar of runs


@dataclass(frozen=True)
class Cell:
    """Rows of one rank that are drawn as one: `text` inside, `title` on hovering; `sequence` is None behind the last sequence."""

    rows: int
    text: str
    title: str
    sequence: int | None
    is_padding: bool


def cells_of_rank(layout: ParallelLayout, sequence_lengths: Sequence[int]) -> list[Cell]:
    """What a rank holds, row by row, or run by run where it holds many."""
    runs = layout.runs(sequence_lengths)
    if layout.local_length(sequence_lengths) > _MOST_CELLS:
        return [cell for run in runs for cell in _cells_of_run(run, sequence_lengths)]
    return [_cell(run, offset, 1, sequence_lengths) for run in runs for offset in range(run.length)]


def _cells_of_run(run: RowRun, sequence_lengths: Sequence[int]) -> list[Cell]:
    """A run as one cell, but a sequence's last token apart from the padding behind it."""
    if run.length > 1 and run.sequence is not None and run.first == sequence_lengths[run.sequence] - 1:
        return [_cell(run, 0, 1, sequence_lengths), _cell(run, 1, run.length - 1, sequence_lengths)]
    return [_cell(run, 0, run.length, sequence_lengths)]


def _cell(run: RowRun, offset: int, rows: int, sequence_lengths: Sequence[int]) -> Cell:
    first = run.first + offset
    positions = str(first) if rows == 1 else f"{first}–{first + rows - 1}"
    if run.sequence is None:
        return Cell(rows, "·", f"padding behind the last sequence, number {positions}", None, True)
    name = f"{run.sequence}:{positions}"
    if run.kind is RowKind.SOURCE:
        return Cell(rows, name, f"sequence {run.sequence}, position {positions}", run.sequence, False)
    if first == sequence_lengths[run.sequence] - 1:
        return Cell(rows, f"{name}*", f"sequence {run.sequence}, last token ({first}): no routed experts", run.sequence, True)
    return Cell(rows, "·", f"padding behind sequence {run.sequence}, position {positions}", run.sequence, True)


def render_terminal(layout: ParallelLayout, sequence_lengths: Sequence[int]) -> RenderableType:
    """A table of ranks and the rows that each holds. `layout` may be that of any rank."""
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("context", justify="right", no_wrap=True)
    table.add_column("tensor", justify="right", no_wrap=True)
    table.add_column("rows")
    for mine in layout.all_ranks():
        line = Text()
        for cell in cells_of_rank(mine, sequence_lengths):
            line.append(f" {cell.text} ", style=_style(cell))
            line.append(" ")
        table.add_row(str(mine.context_parallel_rank), str(mine.tensor_parallel_rank), line)
    title = Text(_title(layout, sequence_lengths), style="bold")
    return Group(title, table, Text(_legend(layout, sequence_lengths), style="dim"))


def render_svg(layout: ParallelLayout, sequence_lengths: Sequence[int]) -> str:
    """The same as one self-contained SVG document."""
    length = layout.local_length(sequence_lengths)
    scale = _CELL if length <= _MOST_CELLS else _BAR / length
    ranks = list(layout.all_ranks())
    words = max(7.4 * len(_title(layout, sequence_lengths)), 5.9 * len(_legend(layout, sequence_lengths)))
    width = max(_LABEL + scale * length, words) + 20
    height = _ROW * (len(ranks) + 3)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" font-family="sans-serif" font-size="11" role="img">',
        f"<title>{escape(_title(layout, sequence_lengths))}</title>",
        f'<rect width="{width:.0f}" height="{height}" fill="#ffffff"/>',
        f'<text x="10" y="22" font-size="13" font-weight="bold">{escape(_title(layout, sequence_lengths))}</text>',
    ]
    for line, mine in enumerate(ranks, start=1):
        top = line * _ROW
        label = f"CP {mine.context_parallel_rank} · TP {mine.tensor_parallel_rank}"
        parts.append(f'<text x="10" y="{top + 20}">{label}</text>')
        left = float(_LABEL)
        for cell in cells_of_rank(mine, sequence_lengths):
            parts += _svg_cell(cell, left, top, scale * cell.rows)
            left += scale * cell.rows
    legend = escape(_legend(layout, sequence_lengths))
    parts.append(f'<text x="10" y="{height - 14}" fill="#555555">{legend}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _svg_cell(cell: Cell, left: float, top: int, width: float) -> list[str]:
    colour = _colour(cell)
    fill, text = ("#f2f2f2", "#444444") if cell.is_padding else (colour, "#ffffff")
    dashes = ' stroke-dasharray="3 2"' if cell.is_padding else ""
    shape = f'<rect x="{left:.2f}" y="{top}" width="{width:.2f}" height="{_ROW - 8}" fill="{fill}" stroke="{colour}"{dashes}/>'
    lines = ["<g>", f"<title>{escape(cell.title)}</title>", shape]
    if 6.5 * len(cell.text) <= width:
        middle = left + width / 2
        lines.append(f'<text x="{middle:.2f}" y="{top + 17}" fill="{text}" text-anchor="middle">{escape(cell.text)}</text>')
    return [*lines, "</g>"]


def _colour(cell: Cell) -> str:
    return _PADDING_COLOUR if cell.sequence is None else _COLOURS[cell.sequence % len(_COLOURS)]


def _style(cell: Cell) -> str:
    return f"{_colour(cell)} italic" if cell.is_padding else f"#ffffff on {_colour(cell)}"


def _title(layout: ParallelLayout, sequence_lengths: Sequence[int]) -> str:
    cut = "zigzag" if layout.zigzag else "allgather" if layout.context_parallel_size > 1 else "undivided"
    divided = "sequence parallel" if layout.sequence_parallel else "not sequence parallel"
    lengths = ", ".join(map(str, sequence_lengths)) or "none"
    return (
        f"context parallel {layout.context_parallel_size} ({cut}) × tensor parallel {layout.tensor_parallel_size} ({divided}), multiplier "
        f"{layout.data_pad_size_multiplier}; sequences: {lengths}"
    )


def _legend(layout: ParallelLayout, sequence_lengths: Sequence[int]) -> str:
    rows = layout.local_length(sequence_lengths)
    ranks = layout.context_parallel_size * (layout.tensor_parallel_size if layout.sequence_parallel else 1)
    sources = sum(length - 1 for length in sequence_lengths)
    return (
        f"s:p is token p of sequence s; * its last token, which has no routed experts; · padding. {rows} rows a rank; "
        f"{rows * ranks - sources} of {rows * ranks} rows are padding."
    )
