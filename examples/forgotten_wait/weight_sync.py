"""Weights that are replaced on a stream of their own while the model computes on another."""

from __future__ import annotations

from collections.abc import Mapping

import torch


class WeightSync:
    """Replaces a model's weights by those that a trainer sent, behind the host's back.

    `forgets` is the bug: the computing stream does not wait for the update.
    """

    def __init__(self, model: torch.nn.Module, *, forgets: bool) -> None:
        self.model = model
        self.forgets = forgets
        self.stream = torch.Stream()

    @torch.no_grad()
    def update(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Copy weights, which lie in pinned host memory, into the model."""
        computing = torch.accelerator.current_stream()
        self.stream.wait_stream(computing)  # the last forward may still read the weights
        with self.stream:
            for name, parameter in self.model.named_parameters():
                parameter.copy_(weights[name], non_blocking=True)
        if not self.forgets:
            computing.wait_stream(self.stream)


def serve(device: str, *, forgets: bool, rounds: int = 3) -> list[torch.Tensor]:
    """Answers of a model whose weights are replaced before each of them; on the CPU tensors, in the order of rounds."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    sent = [
        {name: torch.full_like(parameter, 0.1 * (step + 1)).pin_memory() for name, parameter in model.named_parameters()}
        for step in range(rounds)
    ]
    model = model.to(device)
    question = torch.arange(4.0).to(device)
    sync = WeightSync(model, forgets=forgets)
    answers = []
    for weights in sent:
        sync.update(weights)
        with torch.no_grad():
            answers.append(model(question))
    torch.accelerator.synchronize()
    return [answer.cpu() for answer in answers]
