"""A model trained on a GPU computes what it computes on a CPU, bfloat16 aside."""

import pytest
import torch
from torch import Tensor

from proxies.layers import GPU_DTYPE
from proxies.mixers import MIXERS
from proxies.model import HybridLM
from space.design import Design
from tests.gpu.proxy import GPU, proxy

OPTIONS = {"window": "window:size=32", "gla": "gla:conv=on", "hgrn2": "hgrn2:conv=on", "deltanet": "deltanet:conv=off"}


@pytest.mark.parametrize("mixer", MIXERS)
def test_logits_and_gradients_equal_those_of_a_cpu(mixer: str) -> None:
    scale = proxy((1e-3,), 1).scale
    model = HybridLM(Design.parse(f"2x{OPTIONS.get(mixer, mixer)}"), scale, [0, 1], init_std=0.1, embedding_std=0.5)
    tokens = torch.randint(scale.vocab, (2, 4, 256), generator=torch.Generator().manual_seed(0))

    def found(device: torch.device) -> list[Tensor]:
        placed = model.to(device)
        if device.type == "cuda":
            for matrix in placed.matrices():
                matrix.data = matrix.data.to(GPU_DTYPE)
        logits = placed(tokens.to(device))
        parameters = [p for name, p in placed.named_parameters() if name != "lower_bounds"]
        gradients = torch.autograd.grad(logits.float().logsumexp(-1).mean(), parameters)
        return [x.detach().float().cpu() for x in (logits, *gradients)]

    expected, ours = found(torch.device("cpu")), found(GPU)
    errors = [float((x - y).norm() / y.norm()) for x, y in zip(ours, expected, strict=True)]
    print(mixer, "logits", errors[0], "worst gradient", max(errors[1:]))
    assert errors[0] < 2e-2
    assert max(errors[1:]) < 1e-1
