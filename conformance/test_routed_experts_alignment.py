"""Checks of RXA: each rank gets exactly its rows of routed experts.

Rows carry their own identity (`Case.labels`), so what comes out is compared by identity with the slow model's token layout, never by shape.
Checks without a tier run on the CPU for every rank of a layout; those of the device tier run one rank on the backend's device.
"""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from conformance.backend_under_test import BackendUnderTest
from conformance.checking import clause, expect_refusal, require
from conformance.device_dtypes import device_dtypes
from conformance.models.routed_experts import LayoutSizes, expert_owner, sequential_ids, unavoidable_imbalance
from conformance.routed_expert_cases import SIGNED_AND_SMALL, WIDE_UNSIGNED, Case, Traffic, cases, is_padding, ranks_of
from harness.routed_experts.layout import ParallelLayout

_SMALL = LayoutSizes(2, 2, 4, sequence_parallel=False, allgather_context_parallel=False)
_SEQUENTIAL_HALF = dataclasses.replace(_SMALL, sequence_parallel=True)
_JOINED = dataclasses.replace(_SMALL, allgather_context_parallel=True, sequence_parallel=True)
# Two cases that every run meets, whatever it draws: unequal sequences, cut zigzag and joined.
_ZIGZAG_CASE, _JOINED_CASE = (Case(sizes, (9, 5, 1, 14), 2, 2, 8) for sizes in (_SEQUENTIAL_HALF, _JOINED))


@clause("RXA-1", "RXA-5", examples=0.4)
@example(case=_ZIGZAG_CASE)
@example(case=_JOINED_CASE)
@given(case=cases())
def test_each_row_is_that_of_its_token(backend: BackendUnderTest, case: Case) -> None:
    """Every real position of every rank holds the row of the token that the layout puts there."""
    labels = case.labels()
    for rank in case.ranks():
        places = case.places(rank)
        real = [row for row, place in enumerate(places) if not is_padding(place)]
        _require_rows(case, rank, case.aligned(backend.aligner, rank, labels), case.due(rank, labels), real)


@clause("RXA-1", "RXA-5", examples=0.4)
@given(case=cases(least_sequences=0))
def test_token_ids_are_sliced_like_the_model(case: Case) -> None:
    """The library's layout slices token ids, and finds a token's holder, as the model does."""
    tokens = case.tokens()
    for rank in case.ranks():
        layout, places = case.layout(rank), case.places(rank)
        due = [0 if place.sequence is None else 1000 * place.sequence + (place.position or 0) + 1 for place in places]
        actual = layout.slice_tokens(tokens).tolist()
        if actual != due:
            require(False, f"{_who(case, rank)}: token ids {actual} came, due were {due}")
        for row, place in enumerate(places):
            if place.sequence is not None and place.position is not None:
                found = layout.locate(case.lengths, place.sequence, place.position)
                where = (rank[0], rank[1] if case.sizes.sequence_parallel else None, row)
                if tuple(found) != where:
                    require(False, f"{_who(case, rank)}: {place} was located at {tuple(found)}, due was {where}")


@clause("RXA-2", examples=0.4)
@example(case=_ZIGZAG_CASE)
@example(case=_JOINED_CASE)
@given(case=cases())
def test_each_real_row_appears_once(backend: BackendUnderTest, case: Case) -> None:
    """Counted by identity over all ranks, without the help of any layout."""
    labels = case.labels(torch.int64)
    due = {tuple(row.flatten().tolist()) for experts in labels for row in experts}
    found: list[tuple[int, ...]] = []
    for context_parallel_rank in range(case.sizes.context_parallel_size):
        parts = [
            case.aligned(backend.aligner, (context_parallel_rank, tensor_parallel_rank), labels)
            for tensor_parallel_rank in range(case.sizes.tensor_parallel_size)
        ]
        if not case.sizes.sequence_parallel:
            same = all(torch.equal(part, parts[0]) for part in parts)
            require(same, f"{case}: tensor-parallel ranks of context-parallel rank {context_parallel_rank} hold different rows")
            parts = parts[:1]
        real = [part[part[:, 0, 0] == part[:, 0, 1]] for part in parts]
        found += [tuple(row.flatten().tolist()) for part in real for row in part]
    require(len(found) == len(set(found)), f"{case}: {len(found) - len(set(found))} rows appear more than once over all ranks")
    require(
        set(found) == due,
        f"{case}: {len(due - set(found))} rows of {len(due)} appear on no rank, {len(set(found) - due)} are unknown",
    )


@clause("RXA-3", examples=0.4)
@example(case=_ZIGZAG_CASE)
@example(case=_JOINED_CASE)
@given(case=cases())
def test_all_ranks_have_the_same_length(backend: BackendUnderTest, case: Case) -> None:
    """A multiple of the layout's padding, computed without a process group to ask the others through."""
    labels = case.labels()
    lengths = {rank: len(case.aligned(backend.aligner, rank, labels)) for rank in case.ranks()}
    due = len(case.places((0, 0)))
    require(set(lengths.values()) == {due}, f"{case}: lengths by (context, tensor) rank are {lengths}; all must be {due}")
    divided = case.sizes.tensor_parallel_size if case.sizes.sequence_parallel else 1
    multiple = case.sizes.tensor_parallel_size * case.sizes.data_pad_size_multiplier // divided
    require(due % multiple == 0, f"{case}: length {due} is no multiple of {multiple}")
    require(not torch.distributed.is_initialized(), "the aligner under test started a process group")


@clause("RXA-4", examples=0.3)
@pytest.mark.parametrize("padding", ["sequential", "spread"])
@given(case=cases())
def test_padding_rows_are_legal(backend: BackendUnderTest, case: Case, padding: str) -> None:
    """In range and distinct within a top-k; and the same with and without sequence parallelism to divide them."""
    labels = case.labels()
    undivided = dataclasses.replace(case, sizes=dataclasses.replace(case.sizes, sequence_parallel=False))
    for context_parallel_rank in range(case.sizes.context_parallel_size):
        parts = []
        for tensor_parallel_rank in range(case.sizes.tensor_parallel_size):
            rank = (context_parallel_rank, tensor_parallel_rank)
            actual = case.aligned(backend.aligner, rank, labels, padding=padding)
            rows = _padding_rows(case, rank, actual)
            if not ((rows >= 0) & (rows < case.num_experts)).all():
                require(
                    False,
                    f"{_who(case, rank)}, {padding}: padding ids {sorted(set(rows.flatten().tolist()))} reach outside the experts",
                )
            ordered = rows.sort(dim=2).values
            if not (ordered[..., 1:] != ordered[..., :-1]).all():
                require(False, f"{_who(case, rank)}, {padding}: a padding row names an expert twice")
            parts.append(actual)
        whole = torch.cat(parts) if case.sizes.sequence_parallel else parts[-1]
        due = undivided.aligned(backend.aligner, (context_parallel_rank, 0), labels, padding=padding)
        same = torch.equal(whole, due)
        require(same, f"{case}, {padding}: context-parallel rank {context_parallel_rank} differs by who computes it")


@clause("RXA-4", examples=0.3)
@example(case=_ZIGZAG_CASE)
@example(case=_JOINED_CASE)
@given(case=cases())
def test_sequential_padding_is_numbered_like_the_seed(backend: BackendUnderTest, case: Case) -> None:
    """Every padding row of every rank, compared with the numbering written out."""
    labels = case.labels()
    for rank in case.ranks():
        padding = [row for row, place in enumerate(case.places(rank)) if is_padding(place)]
        _require_rows(case, rank, case.aligned(backend.aligner, rank, labels), case.due(rank, labels), padding)


@clause("RXA-4", examples=0.3)
@example(case=_ZIGZAG_CASE)
@example(case=_JOINED_CASE)
@given(case=cases())
def test_spread_padding_balances_expert_parallel_ranks(backend: BackendUnderTest, case: Case) -> None:
    """Layer by layer: on each rank, and over the padding of the whole layout."""
    labels = case.labels()
    parts = {
        rank: _padding_rows(case, rank, case.aligned(backend.aligner, rank, labels, padding="spread"))
        for rank in case.ranks()
        if case.sizes.sequence_parallel or rank[1] == 0
    }
    owners = torch.tensor(
        [
            expert_owner(expert, num_experts=case.num_experts, ranks=case.sizes.expert_parallel_size)
            for expert in range(case.num_experts)
        ]
    )
    for where, rows in (*parts.items(), ("the whole layout", torch.cat(list(parts.values())))):
        limit = unavoidable_imbalance(
            len(rows), top_k=case.top_k, num_experts=case.num_experts, ranks=case.sizes.expert_parallel_size
        )
        for layer in range(case.layers):
            load = torch.bincount(owners[rows[:, layer].flatten()], minlength=case.sizes.expert_parallel_size)
            gap = int(load.max() - load.min())
            if gap > limit:
                require(False, f"{case}, {where}, layer {layer}: loads {load.tolist()} differ by {gap}, at most {limit} is due")


@clause("RXA-6")
@pytest.mark.parametrize(
    "sizes", [LayoutSizes(1, 1, 1, sequence_parallel=False, allgather_context_parallel=False), _SEQUENTIAL_HALF, _JOINED]
)
@pytest.mark.parametrize("dtype", SIGNED_AND_SMALL, ids=str)
def test_the_output_is_its_own(backend: BackendUnderTest, sizes: LayoutSizes, dtype: torch.dtype) -> None:
    """Dtype and device are kept; the output is contiguous; writing to it leaves the inputs alone, and inputs are not written."""
    case = Case(sizes, (40, 9), 2, 2, 64)
    recorded = [experts.repeat(1, 2, 1) for experts in case.labels(dtype)]
    for inputs in (case.labels(dtype), [experts[:, ::2] for experts in recorded]):
        before, tokens = [experts.clone() for experts in inputs], case.tokens()
        for rank in case.ranks():
            actual = backend.aligner(inputs, tokens, layout=case.layout(rank), num_experts=64)
            require(actual.dtype is dtype, f"{_who(case, rank)}: {dtype} came out as {actual.dtype}")
            require(actual.device == inputs[0].device, f"{_who(case, rank)}: {inputs[0].device} became {actual.device}")
            require(actual.is_contiguous(), f"{_who(case, rank)}: the output has strides {actual.stride()}")
            unchanged = all(map(torch.equal, inputs, before)) and all(map(torch.equal, tokens, case.tokens()))
            require(unchanged, f"{_who(case, rank)}: an input was written")
            actual.fill_(63)
            require(all(map(torch.equal, inputs, before)), f"{_who(case, rank)}: writing to the output changed an input")


@clause("RXA-7")
@pytest.mark.parametrize("dtype", SIGNED_AND_SMALL + WIDE_UNSIGNED, ids=str)
def test_every_dtype_that_holds_the_experts_works(backend: BackendUnderTest, dtype: torch.dtype) -> None:
    """At its largest number of experts, hundreds of padding rows come out as numbered; one expert more is refused."""
    most = min(torch.iinfo(dtype).max + 1, 5000)
    for num_experts in {most, most - 1, min(most, 100)}:
        case = Case(LayoutSizes(1, 1, 300, sequence_parallel=False, allgather_context_parallel=False), (5,), 3, 4, num_experts)
        ids = torch.arange(4 * 12).reshape(4, 3, 4) * 97 % num_experts
        actual = case.aligned(backend.aligner, (0, 0), [ids.to(dtype)]).to(torch.int64)
        due = torch.cat([ids, *(torch.tensor([_numbered(case, number)]) for number in (0, *range(295)))])
        _require_rows(case, (0, 0), actual, due, range(len(due)))
    too_many = torch.iinfo(dtype).max + 2
    if too_many <= 2**31:
        case = dataclasses.replace(case, num_experts=too_many)
        expect_refusal(case.aligned, backend.aligner, (0, 0), [ids.to(dtype)], errors=(ValueError,), quoting=str(too_many))


@clause("RXA-8")
@pytest.mark.parametrize(
    "sizes", [_SMALL, _SEQUENTIAL_HALF, _JOINED, LayoutSizes(1, 1, 1, False, False), LayoutSizes(3, 5, 7, True, True, 4)]
)
@pytest.mark.parametrize("lengths", [(), (1,), (1, 1, 1), (2,), (1, 7, 1), (3, 31)], ids=str)
def test_the_smallest_batches_work(backend: BackendUnderTest, sizes: LayoutSizes, lengths: tuple[int, ...]) -> None:
    """No sequence, one-token sequences, sizes of one, sizes that divide nothing, one expert."""
    for num_experts, top_k in ((1, 1), (5, 3)):
        case = Case(sizes, lengths, 2, top_k, num_experts)
        inputs = [torch.full((length - 1, 2, top_k), num_experts - 1, dtype=torch.int32) for length in lengths]
        for rank in case.ranks():
            actual = case.aligned(backend.aligner, rank, inputs)
            require(len(actual) == len(case.places(rank)), f"{_who(case, rank)}: {len(actual)} rows, due {len(case.places(rank))}")
            if lengths:
                _require_rows(case, rank, actual, case.due(rank, inputs), range(len(actual)))


@clause("RXA-9")
@pytest.mark.parametrize(
    ("shapes", "dtype", "num_experts", "numbers"),
    [
        ([(4, 2, 2)], torch.int32, 8, (1, 2)),
        ([(4, 2, 2), (4, 2, 2)], torch.int32, 8, (1, 4)),
        ([(5, 2, 2), (3, 2, 2)], torch.int32, 8, (0, 5)),
        ([(4, 2, 2), (2, 2, 2)], torch.int32, 8, (1, 2, 4)),
        ([(4, 2, 9), (3, 2, 9)], torch.int32, 8, (8, 9)),
        ([(4, 2, 2), (3, 3, 2)], torch.int32, 8, (1, 2, 3)),
        ([(4, 2, 2), (3, 2, 3)], torch.int32, 8, (1, 2, 3)),
        ([(4, 2, 2), (3, 2, 2)], torch.float32, 8, (0,)),
        ([(4, 2, 2), (3, 2, 2)], torch.bfloat16, 8, (0,)),
        ([(4, 2), (3, 2)], torch.int32, 8, (0,)),
        ([(4, 2, 2), (3, 2, 2)], torch.int32, 0, (0,)),
    ],
    ids=str,
)
def test_inputs_that_do_not_fit_are_refused(
    backend: BackendUnderTest, shapes: list[tuple[int, ...]], dtype: torch.dtype, num_experts: int, numbers: tuple[int, ...]
) -> None:
    """For sequences of 5 and 4 tokens, on every rank alike; the refusal names the sequence and the numbers."""
    case = Case(_SMALL, (5, 4), 2, 2, num_experts)
    inputs = [torch.zeros(shape, dtype=dtype) for shape in shapes]
    for rank in case.ranks():
        refusal = expect_refusal(case.aligned, backend.aligner, rank, inputs, errors=(ValueError,))
        _require_numbers(refusal, numbers)


@clause("RXA-9")
@pytest.mark.parametrize(
    "field", [field.name for field in dataclasses.fields(ParallelLayout) if field.name.endswith(("_size", "_multiplier"))]
)
@pytest.mark.parametrize("value", [0, -1])
def test_sizes_below_one_are_refused(field: str, value: int) -> None:
    """Each size, by name and value."""
    sizes = dataclasses.asdict(LayoutSizes(2, 2, 2, sequence_parallel=True, allgather_context_parallel=True)) | {field: value}
    make = lambda: ParallelLayout(**sizes, context_parallel_rank=0, tensor_parallel_rank=0)  # noqa: E731
    expect_refusal(make, errors=(ValueError,), quoting=f"{field} is {value}")


@clause("RXA-9")
@pytest.mark.parametrize("rank", [(2, 0), (0, 2), (-1, 0), (0, -1), (7, 7)], ids=str)
def test_ranks_outside_their_size_are_refused(rank: tuple[int, int]) -> None:
    """Before anything is computed with them."""
    expect_refusal(Case(_SMALL, (4,), 1, 1, 1).layout, rank, errors=(ValueError,), quoting="_rank is")


@clause("RXA-9")
@given(data=st.data(), case=cases(), dtype=st.sampled_from(SIGNED_AND_SMALL + WIDE_UNSIGNED))
def test_ids_out_of_range_are_refused(backend: BackendUnderTest, data: st.DataObject, case: Case, dtype: torch.dtype) -> None:
    """With validation on, a rank that holds the row names its sequence and position; without one nothing is refused."""
    if sum(case.lengths) == len(case.lengths):
        return
    sequence = data.draw(st.sampled_from([number for number, length in enumerate(case.lengths) if length > 1]))
    position = data.draw(st.integers(0, case.lengths[sequence] - 2))
    largest = min(torch.iinfo(dtype).max, 2**62)
    bad = data.draw(st.sampled_from([id_ for id_ in (-1, case.num_experts, largest) if _is_bad(id_, case.num_experts, dtype)]))
    rank = case.holder(sequence, position)
    labels = case.labels(dtype)
    options = {"layout": case.layout(rank), "num_experts": case.num_experts, "validate": True}

    def align(inputs: list[torch.Tensor]) -> torch.Tensor:
        return backend.aligner(inputs, case.tokens(), **options)  # type: ignore[arg-type]

    align(labels)
    labels[sequence].view(-1)[position * case.layers * case.top_k + 1] = bad
    _require_numbers(expect_refusal(align, labels, errors=(ValueError,)), (sequence, position))


@clause("RXA-10", examples=0.3)
@example(case=_ZIGZAG_CASE)
@example(case=_JOINED_CASE)
@given(case=cases())
def test_the_whole_equals_the_seed(backend: BackendUnderTest, case: Case) -> None:
    """Real and padding rows alike, on every rank."""
    labels = case.labels()
    for rank in case.ranks():
        due = case.due(rank, labels)
        _require_rows(case, rank, case.aligned(backend.aligner, rank, labels), due, range(len(due)))


@clause("RXA-1", "RXA-6", "RXA-10", tier="device", examples=0.3)
@pytest.mark.parametrize("padding", ["sequential", "spread"])
@given(data=st.data(), case=cases())
def test_alignment_on_the_device(backend: BackendUnderTest, data: st.DataObject, case: Case, padding: str) -> None:
    """One rank, on the backend's own device: index arithmetic and copies in every integer dtype that it has."""
    dtype = data.draw(st.sampled_from(device_dtypes(backend, SIGNED_AND_SMALL)))
    rank = data.draw(ranks_of(case))
    labels = case.labels(dtype)
    device = backend.accelerator.device()
    on_device = [experts.to(device) for experts in labels]
    actual = case.aligned(backend.aligner, rank, on_device, padding=padding)
    # A tensor on the CPU says no index, so both go through the adapter.
    require(backend.accelerator.device(actual.device) == device, f"{_who(case, rank)}: {device} became {actual.device}")
    require(actual.dtype is dtype, f"{_who(case, rank)}: {dtype} came out as {actual.dtype}")
    due = case.due(rank, labels) if padding == "sequential" else case.aligned(backend.aligner, rank, labels, padding=padding)
    _require_rows(case, rank, actual.cpu(), due, range(len(due)))


@clause("RXA-11")
@pytest.mark.parametrize("allgather", [False, True])
@pytest.mark.parametrize("rank", [(0, 0), (5, 7), (7, 3)], ids=str)
def test_cost_follows_the_local_output(backend: BackendUnderTest, rank: tuple[int, int], allgather: bool) -> None:
    """All operators together read and write a small multiple of the output, 64 times smaller than the batch."""
    case = Case(LayoutSizes(8, 8, 1, True, allgather), (9000, 3000, 14000), 4, 2, 128)
    inputs = [torch.zeros((length - 1, 4, 2), dtype=torch.int32) for length in case.lengths]
    tokens = case.tokens()
    with Traffic() as traffic:
        actual = backend.aligner(inputs, tokens, layout=case.layout(rank), num_experts=128)
    local = actual.numel() * actual.element_size()
    limit = 6 * local + 2**15
    require(
        traffic.bytes <= limit,
        f"{_who(case, rank)}: {traffic.bytes} bytes were moved for an output of {local}; due is at most {limit}",
    )


def _padding_rows(case: Case, rank: tuple[int, int], actual: torch.Tensor) -> torch.Tensor:
    places = case.places(rank)
    if len(actual) != len(places):
        require(False, f"{_who(case, rank)}: {len(actual)} rows came, {len(places)} are due")
    return actual[torch.tensor([is_padding(place) for place in places], dtype=torch.bool)].to(torch.int64)


def _require_rows(case: Case, rank: tuple[int, int], actual: torch.Tensor, due: torch.Tensor, rows: list[int] | range) -> None:
    if actual.shape != due.shape:
        require(False, f"{_who(case, rank)}: shape {list(actual.shape)} came, {list(due.shape)} is due")
    chosen = torch.tensor(list(rows), dtype=torch.int64)
    wrong = (actual.to(torch.int64)[chosen] != due.to(torch.int64)[chosen]).flatten(1).any(dim=1).nonzero().flatten()
    if len(wrong):
        row = int(chosen[wrong[0]])
        require(
            False,
            f"{_who(case, rank)}: {len(wrong)} rows are wrong; row {row} ({case.places(rank)[row]}) is {actual[row].tolist()}, due was "
            f"{due[row].tolist()}",
        )


def _require_numbers(refusal: BaseException, numbers: tuple[int, ...]) -> None:
    named = re.findall(r"\d+", str(refusal))
    missing = [number for number in numbers if str(number) not in named]
    require(not missing, f"the refusal does not name {missing}: {refusal}")


def _is_bad(expert: int, num_experts: int, dtype: torch.dtype) -> bool:
    bounds = torch.iinfo(dtype)
    return bounds.min <= expert <= bounds.max and not 0 <= expert < num_experts


def _numbered(case: Case, number: int) -> list[list[int]]:
    return sequential_ids(number, layers=case.layers, top_k=case.top_k, num_experts=case.num_experts)


def _who(case: Case, rank: tuple[int, int]) -> str:
    return f"context-parallel rank {rank[0]}, tensor-parallel rank {rank[1]} of {case}"
