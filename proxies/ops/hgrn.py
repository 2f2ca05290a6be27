"""A gated vector state, one number a channel (HGRN).

    h_t = exp(g_t) h_(t-1) + x_t        o_t = h_t

Shapes: x, g and o `[B, T, D]`. The input arrives already gated, as in fla.
"""

from typing import Any

import torch
from torch import Tensor

from proxies.ops import kernels


def hgrn(x: Tensor, g: Tensor) -> Tensor:
    """fla's `chunk_hgrn`, in the form that suits the device."""
    return kernels.run("hgrn", hgrn_scan, x=x, g=g)


def hgrn_recurrence(x: Tensor, g: Tensor) -> Tensor:
    """One step after the other, differentiated by autograd."""
    state = torch.zeros_like(x[:, 0])
    outputs = []
    for t in range(x.shape[1]):
        state = g[:, t].exp() * state + x[:, t]
        outputs.append(state)
    return torch.stack(outputs, dim=1)


def hgrn_scan(x: Tensor, g: Tensor) -> Tensor:
    """The same loop with its gradient written out, which is the same loop in reverse time."""
    return _Scan.apply(x, g)


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, g: Tensor) -> Tensor:
        decay = g.exp()
        states = x.clone(memory_format=torch.contiguous_format)
        for before, now, decay_t in zip(states.unbind(1), states.unbind(1)[1:], decay.unbind(1)[1:], strict=False):
            now.addcmul_(before, decay_t)
        ctx.save_for_backward(decay, states)
        return states

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        decay, states = ctx.saved_tensors
        grad_x = grad.clone(memory_format=torch.contiguous_format)
        steps, decays = grad_x.unbind(1), decay.unbind(1)
        for t in range(len(steps) - 1, 0, -1):
            steps[t - 1].addcmul_(steps[t], decays[t])
        grad_g = torch.zeros_like(decay)
        torch.mul(grad_x[:, 1:] * decay[:, 1:], states[:, :-1], out=grad_g[:, 1:])
        return grad_x, grad_g
