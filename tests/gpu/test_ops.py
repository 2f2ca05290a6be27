"""Every kernel against its torch form in float32, from the same bfloat16 inputs: outputs and all gradients."""

import pytest
import torch
from torch import Tensor

from proxies.ops.kernels import KERNELS, choose
from tests.gpu.proxy import GPU
from tests.proxies.test_ops import OPS, Op, draw

SHAPES = [(4, 256, 2, 64), (2, 200, 2, 64), (4, 256, 4, 16), (2, 256, 2, 48)]  # no tiles are shipped for 16 and 48


def outputs(op: Op, inputs: dict[str, Tensor], reference: bool) -> list[Tensor]:
    leaves = [x.float() if reference else x for x in inputs.values()]
    leaves = [x.detach().requires_grad_() for x in leaves]
    output = (op.recurrence if reference else op.run)(*leaves)
    generator = torch.Generator(GPU).manual_seed(1)
    weights = torch.randn(output.shape, generator=generator, device=GPU).bfloat16()
    return [output, *torch.autograd.grad(output, leaves, weights.to(output.dtype))]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "B{}-T{}-H{}-D{}".format(*s))
@pytest.mark.parametrize("name", OPS)
def test_kernel_equals_the_recurrence(name: str, shape: tuple[int, int, int, int]) -> None:
    op = OPS[name]
    inputs = {key: x.to(GPU, torch.bfloat16) for key, x in draw(op, *shape, value_dim=shape[-1]).items()}
    found, expected = outputs(op, inputs, reference=False), outputs(op, inputs, reference=True)
    errors = {
        key: float((x.float() - y).detach().norm() / y.detach().norm())
        for key, x, y in zip(["output", *inputs], found, expected, strict=True)
    }
    print(name, choose(name, GPU).reason, {key: round(error, 5) for key, error in errors.items()})
    assert max(errors.values()) < 1e-2, errors


def test_every_op_says_what_serves_it() -> None:
    assert set(KERNELS) == set(OPS)
    for name in KERNELS:
        kernel, reason = choose(name, GPU)
        assert reason.startswith("fla's" if kernel else "torch form: ")
