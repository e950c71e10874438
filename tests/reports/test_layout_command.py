"""The picture of a layout: every row of every rank is drawn, padding apart from tokens."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from click.testing import CliRunner

from conformance.models.routed_experts import LayoutSizes
from conformance.routed_expert_cases import Case, is_padding
from reports.layout_command import layout
from reports.layout_picture import cells_of_rank, render_svg

_TITLE, _RECT = "{http://www.w3.org/2000/svg}title", "{http://www.w3.org/2000/svg}rect"


def test_the_example_by_hand() -> None:
    result = CliRunner().invoke(layout, ["--tensor-parallel", "2", "--context-parallel", "2", "--sequences", "6,3"])
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.output.splitlines() if line.split()[:1] in (["0"], ["1"])]
    assert rows == [
        ["0", "│", "0", "│", "0:0", "0:1", "·"],
        ["0", "│", "1", "│", "·", "1:0", "·"],
        ["1", "│", "0", "│", "0:2", "0:3", "0:4"],
        ["1", "│", "1", "│", "0:5*", "1:1", "1:2*"],
    ]
    assert "5 of 12 rows are padding" in result.output


@pytest.mark.parametrize("allgather", [False, True])
@pytest.mark.parametrize("lengths", [(), (1,), (6, 3), (90, 70, 1)])
def test_every_row_is_drawn_once(lengths: tuple[int, ...], allgather: bool) -> None:
    case = Case(LayoutSizes(2, 3, 4, sequence_parallel=True, allgather_context_parallel=allgather), lengths, 1, 1, 1)
    for rank in case.ranks():
        cells = cells_of_rank(case.layout(rank), lengths)
        places = case.places(rank)
        assert sum(cell.rows for cell in cells) == len(places)
        assert sum(cell.rows for cell in cells if cell.is_padding) == sum(map(is_padding, places))
    document = ElementTree.fromstring(render_svg(case.layout((0, 0)), lengths))
    drawn = [group for group in document.iter() if group.tag == "{http://www.w3.org/2000/svg}g"]
    assert len(drawn) == sum(len(cells_of_rank(case.layout(rank), lengths)) for rank in case.ranks())
    assert all(group.find(_TITLE) is not None and group.find(_RECT) is not None for group in drawn)


def test_the_svg_is_written(tmp_path: Path) -> None:
    target = tmp_path / "out.svg"
    result = CliRunner().invoke(layout, ["--sequences", "6,3", "--svg", str(target)])
    assert result.exit_code == 0, result.output
    assert ElementTree.fromstring(target.read_text(encoding="utf-8")).tag.endswith("svg")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--sequences", "6,x"], "'6,x': expected numbers of tokens"),
        (["--sequences", "0"], "at least 1"),
        (["--sequences", "6", "--tensor-parallel", "0"], "tensor_parallel_size is 0"),
        (["--sequences", "6", "--context-parallel", "300"], "300 ranks are too many"),
        ([], "--sequences"),
    ],
)
def test_wrong_usage_is_said(arguments: list[str], text: str) -> None:
    result = CliRunner().invoke(layout, arguments)
    assert result.exit_code == 2
    assert text in result.output


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    result = CliRunner().invoke(layout, ["--sequences", "6", "--svg", str(tmp_path / "missing" / "out.svg")])
    assert result.exit_code == 1
    assert "No such file" in result.output
