"""Our Triton kernels, compiled, in the dtypes and sizes a training step has; the interpreter has seen the rest."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from proxies.fused.rms_norm import RMSNormFunction
from proxies.fused.short_conv import ShortConvFunction
from tests.gpu.proxy import GPU

K, B, T, D, HEAD = 4, 8, 200, 128, 64
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 1e-2}


def leaf(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator(GPU).manual_seed(len(shape)), device=GPU)


def assert_same(kernel, plain, inputs: list[Tensor], dtype: torch.dtype) -> None:  # type: ignore[no-untyped-def]
    """`inputs` in `dtype`, vectors aside; the plain form from the same numbers in float32."""
    inputs = [x.to(dtype) if x.dim() > 2 else x for x in inputs]
    grads, results = None, []
    for run, leaves in ((kernel, inputs), (plain, [x.float() for x in inputs])):
        leaves = [x.detach().requires_grad_() for x in leaves]
        outputs = run(*leaves)
        grads = [torch.randn_like(y) for y in outputs] if grads is None else [g.float() for g in grads]
        results.append([*outputs, *torch.autograd.grad(outputs, leaves, grads)])
    for x, y in zip(*results, strict=True):
        error = float((x.float() - y).detach().norm() / y.detach().norm())
        print(tuple(x.shape), dtype, error)
        assert error < TOLERANCE[dtype]


def norm(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], eps=1e-6) * weight.view(len(x), *[1] * (x.dim() - 2), -1)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_norm_after_a_sum(dtype: torch.dtype) -> None:
    assert_same(
        lambda x, w, r: RMSNormFunction.apply(x, w, r, None, True, 1e-6),
        lambda x, w, r: [norm(x + r, w), x + r],
        [leaf(K, B, T, D), leaf(K, D), leaf(K, B, T, D)],
        dtype,
    )


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_norm_before_a_gate(dtype: torch.dtype) -> None:
    assert_same(
        lambda x, w, g: RMSNormFunction.apply(x, w, None, g, True, 1e-6)[:1],
        lambda x, w, g: [norm(x, w) * F.silu(g)],
        [leaf(K, B, T, 2, HEAD), leaf(K, HEAD), leaf(K, B, T, 2, HEAD)],
        dtype,
    )


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("unit", [None, HEAD])
def test_short_convolution(unit: int | None, dtype: torch.dtype) -> None:
    def plain(x: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
        y = torch.stack([F.conv1d(F.pad(x[k].mT, (3, 0)), weight[k], bias[k], groups=D).mT for k in range(K)])
        heads = F.silu(y).unflatten(-1, (-1, HEAD))
        return [(heads * (heads.square().sum(-1, keepdim=True) + 1e-6).rsqrt() if unit else heads).flatten(-2)]

    assert_same(
        lambda x, w, b: [ShortConvFunction.apply(x, w, b, True, unit, 1e-6)],
        plain,
        [leaf(K, B, T, D), leaf(K, D, 1, 4), leaf(K, D)],
        dtype,
    )
