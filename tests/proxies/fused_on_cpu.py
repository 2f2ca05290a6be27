"""The Triton kernels of `proxies.fused` against plain torch, with all gradients. `test_fused` runs this file by itself:
Triton's interpreter, which needs no GPU, must be asked for before Triton is imported."""

from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from proxies.fused.rms_norm import RMSNormFunction
from proxies.fused.short_conv import ShortConvFunction

K, B, T = 2, 1, 35
Function = Callable[..., Sequence[Tensor]]


def assert_same(kernel: Function, plain: Function, leaves: list[Tensor]) -> None:
    found, expected = kernel(*leaves), plain(*leaves)
    weights = [torch.randn(y.shape) for y in expected]
    gradients = [
        torch.autograd.grad([*ys], leaves, weights)  # type: ignore[arg-type]
        for ys in (found, expected)
    ]
    for x, y in zip([*found, *gradients[0]], [*expected, *gradients[1]], strict=True):
        torch.testing.assert_close(x, y, rtol=2e-5, atol=2e-5)


def leaf(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, requires_grad=True)


def norm(x: Tensor, weight: Tensor) -> Tensor:
    normal = x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    return normal * weight.view(len(x), *[1] * (x.dim() - 2), -1)


@pytest.mark.parametrize("dim", [24, 64])
class TestRMSNorm:
    def test_alone(self, dim: int) -> None:
        assert_same(
            lambda x, w: RMSNormFunction.apply(x, w, None, None, True, 1e-6)[:1],
            lambda x, w: [norm(x, w)],
            [leaf(K, B, T, dim), leaf(K, dim)],
        )

    def test_after_a_sum(self, dim: int) -> None:
        assert_same(
            lambda x, w, r: RMSNormFunction.apply(x, w, r, None, True, 1e-6),
            lambda x, w, r: [norm(x + r, w), x + r],
            [leaf(K, B, T, dim), leaf(K, dim), leaf(K, B, T, dim)],
        )

    @pytest.mark.parametrize("silu", [True, False], ids=["silu", "sigmoid"])
    def test_before_a_gate(self, dim: int, silu: bool) -> None:
        assert_same(
            lambda x, w, g: RMSNormFunction.apply(x, w, None, g, silu, 1e-6)[:1],
            lambda x, w, g: [norm(x, w) * (F.silu(g) if silu else g.sigmoid())],
            [leaf(K, B, T, 3, dim), leaf(K, dim), leaf(K, B, T, 3, dim)],
        )


@pytest.mark.parametrize(
    ("dim", "unit", "silu", "biased"), [(80, None, True, True), (24, None, False, False), (32, 16, True, False)]
)
def test_short_convolution(dim: int, unit: int | None, silu: bool, biased: bool) -> None:
    def plain(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> list[Tensor]:
        y = torch.stack([F.conv1d(F.pad(x[k].mT, (3, 0)), weight[k], groups=dim).mT for k in range(K)])
        y = y if bias is None else y + bias[:, None, None]
        y = F.silu(y) if silu else y
        if unit:
            heads = y.unflatten(-1, (-1, unit))
            y = (heads * (heads.square().sum(-1, keepdim=True) + 1e-6).rsqrt()).flatten(-2)
        return [y]

    def kernel(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> list[Tensor]:
        return [ShortConvFunction.apply(x, weight, bias, silu, unit, 1e-6)]

    assert_same(kernel, plain, [leaf(K, B, T, dim), leaf(K, dim, 1, 4), *([leaf(K, dim)] if biased else [])])
