"""What the documents show runs."""

from __future__ import annotations

import pytest
from documentation_blocks import Block, blocks

from conformance.children import ChildProcesses

_WHOLE = {"README.md", "docs/bring-up.md", "docs/simulated-devices.md"}
"""Documents whose every python block runs; others may also show fragments."""


@pytest.mark.parametrize("block", [block for block in blocks() if block.runs], ids=str)
def test_the_block_runs(block: Block, children: ChildProcesses) -> None:
    answer = children.run(
        "documentation_blocks:run_here",
        backend={},
        environment={"PYTHONDONTWRITEBYTECODE": "1"},
        fresh_interpreter=False,
        timeout=120,
        arguments={"text": block.text, "name": str(block)},
    )
    assert answer == 0


def test_no_block_of_these_documents_is_left_out() -> None:
    assert not [str(block) for block in blocks() if block.document in _WHOLE and not block.runs]
    assert {block.document for block in blocks() if block.runs} >= _WHOLE
