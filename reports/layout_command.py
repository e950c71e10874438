"""The command `accelerator-conformance layout`.

For: drawing who owns which token under a parallel layout, given on the command line. Not for: the drawing (`layout_picture.py`).
"""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from harness.errors import RoutedExpertsError
from harness.routed_experts import ParallelLayout
from reports import layout_picture

_MOST_RANKS = 256


def _lengths(_context: click.Context, _parameter: click.Parameter, value: str) -> list[int]:
    """Numbers of tokens, each at least 1, from a list with commas."""
    try:
        lengths = [int(part) for part in value.split(",") if part.strip()]
    except ValueError:
        lengths = [0]
    if any(length < 1 for length in lengths):
        raise click.BadParameter(f"{value!r}: expected numbers of tokens of at least 1, separated by commas, such as 6,3")
    return lengths


@click.command()
@click.option("--tensor-parallel", default=1, show_default=True, help="Tensor-parallel ranks.")
@click.option("--context-parallel", default=1, show_default=True, help="Context-parallel ranks.")
@click.option("--sequences", callback=_lengths, required=True, metavar="N,N,…", help="Tokens of each sequence.")
@click.option("--multiplier", default=1, show_default=True, help="A rank's length is a multiple of this × tensor-parallel ranks.")
@click.option(
    "--sequence-parallel/--no-sequence-parallel",
    default=True,
    show_default=True,
    help="Whether tensor-parallel ranks divide the rows.",
)
@click.option("--allgather", is_flag=True, help="Join the sequences and cut the whole, instead of cutting each sequence zigzag.")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Write the picture to this file too.")
def layout(
    tensor_parallel: int,
    context_parallel: int,
    sequences: list[int],
    multiplier: int,
    sequence_parallel: bool,
    allgather: bool,
    svg: Path | None,
) -> None:
    """Draw which rank owns which token, and which rows are padding.

    For example: layout --tensor-parallel 2 --context-parallel 2 --sequences 6,3
    """
    try:
        drawn = ParallelLayout(
            tensor_parallel_size=tensor_parallel,
            tensor_parallel_rank=0,
            context_parallel_size=context_parallel,
            context_parallel_rank=0,
            data_pad_size_multiplier=multiplier,
            sequence_parallel=sequence_parallel,
            allgather_context_parallel=allgather,
        )
    except RoutedExpertsError as error:
        raise click.UsageError(str(error)) from error
    ranks = tensor_parallel * context_parallel
    if ranks > _MOST_RANKS:
        raise click.UsageError(f"{ranks} ranks are too many to draw; at most {_MOST_RANKS}")
    console = Console()
    console = console if console.is_terminal else Console(width=160)
    console.print(layout_picture.render_terminal(drawn, sequences))
    if svg is not None:
        try:
            svg.write_text(layout_picture.render_svg(drawn, sequences), encoding="utf-8")
        except OSError as error:
            raise click.ClickException(f"--svg={svg}: {error.strerror}") from error
        click.echo(f"written to {svg}")
