"""Random numbers of a simulated device."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch

import fakes

pytestmark = pytest.mark.usefixtures("simulated_machine")

DRAWS = {
    "randn": lambda device: torch.randn(5, device=device),
    "rand": lambda device: torch.rand(5, device=device),
    "randint": lambda device: torch.randint(100, (5,), device=device),
    "randperm": lambda device: torch.randperm(20, device=device),
    "rand_like": lambda device: torch.rand_like(torch.empty(5, device=device)),
    "normal_": lambda device: torch.empty(5, device=device).normal_(),
    "bernoulli": lambda device: torch.bernoulli(torch.full((30,), 0.5, device=device)),
    "multinomial": lambda device: torch.multinomial(torch.ones(30, device=device), 8),
    "dropout": lambda device: torch.nn.functional.dropout(torch.ones(30, device=device)),
    "exponential_": lambda device: torch.empty(5, device=device).exponential_(),
    "poisson": lambda device: torch.poisson(torch.full((30,), 3.0, device=device)),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_repeat_and_disturb_no_other_generator(name: str) -> None:
    draw = DRAWS[name]
    torch.manual_seed(7)
    torch.musa.set_device(1)
    cpu, other = torch.get_rng_state(), torch.musa.get_rng_state(0)
    state = torch.musa.get_rng_state(1)
    first, second = draw("musa:1"), draw("musa:1")
    assert torch.equal(torch.get_rng_state(), cpu)
    assert torch.equal(torch.musa.get_rng_state(0), other)
    assert not torch.equal(first, second)
    torch.musa.set_rng_state(state, 1)
    assert torch.equal(draw("musa:1"), first)
    assert torch.equal(draw("musa:1"), second)
    torch.musa.manual_seed(7)
    assert torch.equal(draw("musa"), first)


@pytest.mark.parametrize("seed", [0, 1, -1, -(2**63), 2**63, 2**64 - 1])
def test_seeds(seed: int) -> None:
    torch.musa.manual_seed(seed)
    assert torch.musa.initial_seed() == seed % 2**64
    torch.musa.manual_seed_all(seed)
    torch.musa.set_device(1)
    assert torch.musa.initial_seed() == seed % 2**64


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1])
def test_seeds_out_of_range_are_refused(seed: int) -> None:
    before = torch.musa.get_rng_state()
    with pytest.raises(RuntimeError, match="Overflow"):
        torch.musa.manual_seed(seed)
    assert torch.equal(torch.musa.get_rng_state(), before)


def test_seeding_before_first_use_keeps_the_latest(simulated_machine: fakes.Machine) -> None:
    for seed in range(1000):
        torch.musa.manual_seed(seed)
    torch.musa.manual_seed_all(5)
    torch.musa.manual_seed(6)
    assert not torch.musa.is_initialized()
    assert len(simulated_machine._pending_seeds) <= 3
    assert torch.musa.initial_seed() == 6
    torch.musa.set_device(1)
    assert torch.musa.initial_seed() == 5


def test_states_are_host_bytes_that_later_draws_leave_alone() -> None:
    with torch.device("musa:1"):
        state = torch.musa.get_rng_state(1)
    assert (state.device.type, state.dtype, state.dim()) == ("cpu", torch.uint8, 1)
    copy = state.clone()
    torch.randn(3, device="musa:1")
    assert torch.equal(state, copy)
    assert len(torch.musa.get_rng_state_all()) == 2
    torch.musa.set_rng_state_all([state, state])
    assert torch.equal(torch.musa.get_rng_state(0), state)


@pytest.mark.parametrize("bad", [torch.zeros(3, dtype=torch.uint8), torch.zeros(5056), torch.tensor(1), "state", None])
def test_bad_states_are_refused_and_change_nothing(bad: object) -> None:
    before = torch.musa.get_rng_state()
    with pytest.raises((RuntimeError, TypeError)):
        torch.musa.set_rng_state(bad)
    assert torch.equal(torch.musa.get_rng_state(), before)


def test_generators_belong_to_a_device() -> None:
    generator = torch.Generator(device="musa:1")
    assert isinstance(generator, torch.Generator)
    assert generator.device == torch.device("musa:1")
    generator.manual_seed(3)
    first = torch.randn(4, generator=generator, device="musa:1")
    generator.manual_seed(3)
    assert torch.equal(torch.empty(4, device="musa:1").normal_(generator=generator), first)
    generator.manual_seed(3)
    assert torch.randperm(9, generator=generator, device="musa:1").device.index == 1
    with pytest.raises(RuntimeError, match="generator on musa:0"):
        torch.randn(4, generator=generator, device="musa:0")
    with pytest.raises(RuntimeError, match="Expected a 'musa' device type for generator but found 'cpu'"):
        torch.randn(4, generator=torch.Generator(), device="musa")
    assert torch.Generator().device.type == "cpu"
    assert isinstance(torch.default_generator, torch.Generator)


def test_fork_rng_restores_the_device() -> None:
    before = torch.musa.get_rng_state(1)
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[0, 1], device_type="musa"):
        torch.randn(3, device="musa:1")
        torch.manual_seed(99)
    assert torch.equal(torch.musa.get_rng_state(1), before)


def test_random_seeds_differ() -> None:
    torch.musa.seed()
    first = torch.musa.initial_seed()
    torch.musa.seed_all()
    assert torch.musa.initial_seed() != first


def test_an_operator_that_writes_its_noise_gives_its_result(simulated_machine: fakes.Machine) -> None:
    values = torch.linspace(-1, 1, 6)
    for schedule in ("eager", "lazy"):
        simulated_machine.reset(schedule=schedule)
        torch.manual_seed(1)
        result = torch.nn.functional.rrelu(values.to("musa"), training=True).cpu()
        assert torch.equal(result[3:], values[3:])
        assert bool((result[:3] < 0).all())


@pytest.mark.parametrize(
    "draw",
    [
        lambda generator: torch.rand(2, generator=generator),
        lambda generator: torch.randperm(3, generator=generator),
        lambda generator: torch.multinomial(torch.ones(2), 1, generator=generator),
        lambda generator: torch.empty(2).normal_(generator=generator),
    ],
)
def test_the_cpu_refuses_a_device_generator(draw: Callable[[torch.Generator], torch.Tensor]) -> None:
    generator = torch.Generator("musa:1").manual_seed(1)
    before = generator.get_state()
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'musa'"):
        draw(generator)
    assert torch.equal(generator.get_state(), before)
    assert torch.rand(2, device="musa:1", generator=generator).device.index == 1
