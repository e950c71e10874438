"""RNG: seeds, states and draws across devices and the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conformance.accelerator_access import device_type_of, method
from conformance.backend_under_test import BackendUnderTest
from conformance.checking import clause, expect_refusal, require
from conformance.child_programs import random_numbers as children
from conformance.programs import random_program
from conformance.programs.random_program import RandomProgram, draw_numbers, seeds


@clause("RNG-1")
@given(program=random_program.seed_programs)
def test_the_same_seed_and_calls_give_the_same_numbers(backend: BackendUnderTest, program: RandomProgram) -> None:
    program.run(backend.accelerator)


@clause("RNG-2")
@given(program=random_program.state_programs)
def test_a_state_replays_exactly(backend: BackendUnderTest, program: RandomProgram) -> None:
    program.run(backend.accelerator)


@clause("RNG-2")
def test_a_state_may_be_the_first_use_of_a_device(backend: BackendUnderTest) -> None:
    read = backend.in_child(children.state_as_first_use)
    require(
        read["again"] == read["drawn"],
        f"reading the state as the first use, drawing {read['drawn']} (bits) and restoring it gave {read['again']}",
    )
    restored = backend.in_child(children.state_as_first_use, state=read["later"])
    require(
        restored["drawn"] == read["next"],
        f"restoring a state as the first use of a process gave {restored['drawn']} (bits); due were {read['next']}, as in the process "
        "that saved it",
    )


@clause("RNG-3")
@given(program=random_program.device_programs)
def test_devices_do_not_disturb_each_other(backend: BackendUnderTest, program: RandomProgram) -> None:
    program.run(backend.accelerator)


@clause("RNG-4")
@pytest.mark.parametrize(("used", "seed"), [(False, 5), (True, -1)], ids=["before-first-use", "with-one-device-in-use"])
def test_every_device_is_seeded(backend: BackendUnderTest, used: bool, seed: int) -> None:
    answer = backend.in_child(children.seed_all_devices, seed=seed, used=used)
    for device, (drawn, due) in enumerate(zip(answer["drawn"], answer["due"], strict=True)):
        require(
            drawn == due,
            f"after manual_seed_all({seed}), device {device} draws {drawn} (bits); due were {due}, as after manual_seed({seed}) there",
        )


@clause("RNG-5")
@given(program=random_program.initial_seed_programs)
def test_the_initial_seed_is_the_last_set_or_restored(backend: BackendUnderTest, program: RandomProgram) -> None:
    program.run(backend.accelerator)


@clause("RNG-5")
@given(seed=seeds | st.integers(-(2**63), 2**64 - 1), all_devices=st.booleans())
def test_every_seed_that_pytorch_takes_is_taken(backend: BackendUnderTest, seed: int, all_devices: bool) -> None:
    accelerator = backend.accelerator
    name = "manual_seed_all" if all_devices else "manual_seed"
    method(accelerator, "set_device")(0)
    method(accelerator, name)(seed)
    found = method(accelerator, "initial_seed")()
    require(found % 2**64 == seed % 2**64, f"after {name}({seed}), initial_seed() is {found!r}; due was {seed % 2**64}")


@clause("RNG-6")
@given(program=random_program.host_programs)
def test_the_device_and_the_cpu_draw_apart(backend: BackendUnderTest, program: RandomProgram) -> None:
    program.run(backend.accelerator)


@clause("RNG-6")
@given(seed=seeds, call=st.sampled_from(["manual_seed", "manual_seed_all", "set_rng_state", "draw"]))
def test_the_cpus_state_stands_still(backend: BackendUnderTest, seed: int, call: str) -> None:
    accelerator = backend.accelerator
    method(accelerator, "set_device")(0)
    before = torch.default_generator.get_state()
    if call == "draw":
        torch.rand(3, device=method(accelerator, "device")(0))
    elif call == "set_rng_state":
        method(accelerator, call)(method(accelerator, "get_rng_state")(0), 0)
    else:
        method(accelerator, call)(seed)
    same = torch.equal(torch.default_generator.get_state(), before)
    require(same, f"{call} on the device{f' with seed {seed}' if 'seed' in call else ''} changed the CPU's generator")


# States that must be refused

_WRONG: dict[str, Callable[[torch.Tensor], Any]] = {
    "None": lambda state: None,
    "a list": lambda state: state.tolist(),
    "bytes": lambda state: bytes(state.tolist()),
    "a number": lambda state: 5,
    "float32": lambda state: state.float(),
    "int64": lambda state: state.long(),
    "int8": lambda state: state.view(torch.int8),
    "nothing": lambda state: state[:0],
    "one byte short": lambda state: state[:-1],
    "one byte more": lambda state: torch.cat([state, state[:1]]),
    "twice": lambda state: torch.cat([state, state]),
    "half": lambda state: state[: len(state) // 2],
    "3 bytes": lambda state: torch.ones(3, dtype=torch.uint8),
}


@clause("RNG-7")
@given(kind=st.sampled_from(sorted(_WRONG)), seed=seeds, device=st.integers(0, 2))
def test_a_wrong_state_is_refused_and_changes_nothing(backend: BackendUnderTest, kind: str, seed: int, device: int) -> None:
    accelerator = backend.accelerator
    device %= int(method(accelerator, "device_count")())
    method(accelerator, "set_device")(device)
    method(accelerator, "manual_seed")(seed)
    place = method(accelerator, "device")(device)
    state = method(accelerator, "get_rng_state")(device)
    wrong = _WRONG[kind](state)
    declared = (state.numel(), *getattr(accelerator, "random_state_sizes", ()))
    if isinstance(wrong, torch.Tensor) and wrong.dtype == torch.uint8 and wrong.numel() in declared:
        return
    expect_refusal(method(accelerator, "set_rng_state"), wrong, device, errors=(TypeError, ValueError, RuntimeError))
    after = method(accelerator, "get_rng_state")(device)
    require(torch.equal(after, state), f"the refused state ({kind}) changed the state of {place}")
    drawn = draw_numbers("rand", 4, place)
    method(accelerator, "set_rng_state")(state, device)
    due = draw_numbers("rand", 4, place)
    require(drawn == due, f"after the refused state ({kind}), {place} draws {drawn} (bits); due were {due}")


# Not the CPU's


@clause("RNG-8")
@given(host=seeds, seed=seeds, device=st.integers(0, 2))
def test_a_devices_state_is_not_the_cpus(backend: BackendUnderTest, host: int, seed: int, device: int) -> None:
    if host % 2**32 == seed % 2**32:
        return  # where both use one algorithm, equal seeds may give equal states
    accelerator = backend.accelerator
    device %= int(method(accelerator, "device_count")())
    before = torch.default_generator.get_state()
    try:
        method(accelerator, "set_device")(device)
        method(accelerator, "manual_seed")(seed)
        torch.default_generator.manual_seed(host)
        cpu = torch.default_generator.get_state()
        state = method(accelerator, "get_rng_state")(device)
    finally:
        torch.default_generator.set_state(before)
        method(accelerator, "set_device")(0)
    same = isinstance(state, torch.Tensor) and torch.equal(state.cpu(), cpu)
    require(
        not same, f"with the CPU seeded with {host} and device {device} with {seed}, get_rng_state({device}) is the CPU's state"
    )


@clause("RNG-8")
@given(host=seeds, seed=seeds, device=st.integers(0, 2))
def test_without_a_device_the_current_ones_state_is_meant(backend: BackendUnderTest, host: int, seed: int, device: int) -> None:
    """For reading and for setting; the CPU's is neither read nor set."""
    accelerator = backend.accelerator
    device %= int(method(accelerator, "device_count")())
    before = torch.default_generator.get_state()
    try:
        method(accelerator, "set_device")(device)
        method(accelerator, "manual_seed")(seed)
        torch.default_generator.manual_seed(host)
        cpu = torch.default_generator.get_state()
        named, bare = method(accelerator, "get_rng_state")(device), method(accelerator, "get_rng_state")()
        require(torch.equal(named, bare), f"with device {device} current, get_rng_state() differs from get_rng_state({device})")
        torch.rand(3, device=method(accelerator, "device")(device))
        method(accelerator, "set_rng_state")(bare)
        restored = method(accelerator, "get_rng_state")(device)
        require(torch.equal(restored, named), f"with device {device} current, set_rng_state(state) left another state on it")
        require(torch.equal(torch.default_generator.get_state(), cpu), "set_rng_state(state) changed the CPU's generator")
    finally:
        torch.default_generator.set_state(before)


@clause("RNG-8")
@given(seed=seeds, sizes=st.lists(st.integers(0, 9), min_size=1, max_size=4), device=st.integers(0, 2), raises=st.booleans())
def test_forked_numbers_leave_the_device_as_it_was(
    backend: BackendUnderTest, seed: int, sizes: list[int], device: int, raises: bool
) -> None:
    accelerator = backend.accelerator
    device %= int(method(accelerator, "device_count")())
    place = method(accelerator, "device")(device)
    method(accelerator, "set_device")(device)
    method(accelerator, "manual_seed")(seed)
    before = method(accelerator, "get_rng_state")(device)
    try:
        with torch.random.fork_rng(devices=[device], device_type=device_type_of(accelerator)):
            for size in (*sizes, 3):
                torch.rand(size, device=place)
            method(accelerator, "manual_seed")(seed + 1 if seed < 2**63 else 0)
            if raises:
                raise KeyError
    except KeyError:
        require(raises, "fork_rng raised a KeyError")
    after = method(accelerator, "get_rng_state")(device)
    method(accelerator, "set_device")(0)
    require(
        torch.equal(after, before),
        f"fork_rng(devices=[{device}], device_type={device_type_of(accelerator)!r}) left {place} in another state than before",
    )


# Before first use

_TIMES = 4000


@clause("RNG-9")
def test_seeds_before_first_use_do_not_pile_up(backend: BackendUnderTest) -> None:
    answer = backend.in_child(children.seed_many_times, times=_TIMES)
    require(
        answer["grown"] < _TIMES // 10,
        f"{2 * _TIMES} seeds before first use left {answer['grown']} more blocks of memory in use; due were about none",
    )
    require(
        answer["drawn"] == answer["due"],
        f"after many seeds before first use, the device draws {answer['drawn']} (bits); due were {answer['due']}, of the latest seed",
    )
