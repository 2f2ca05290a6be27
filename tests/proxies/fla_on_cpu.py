"""fla's layers on a CPU: its Triton functions replaced, for one test, by its own naive ones or by plain torch."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fla.layers import delta_net, gated_deltanet, gla, hgrn, hgrn2, kda, mamba2, multiscale_retention
from fla.modules import FusedRMSNormGated, RMSNorm, RotaryEmbedding, ShortConvolution
from fla.modules.norm.layernorm_gated import RMSNormGated
from fla.modules.rotary.ops import rotary_embedding_ref
from fla.ops.delta_rule.naive import delta_rule_recurrence
from fla.ops.gated_delta_rule.gate import naive_gdn_gate
from fla.ops.gated_delta_rule.naive import naive_recurrent_gated_delta_rule
from fla.ops.gla.naive import naive_recurrent_gla
from fla.ops.hgrn.naive import naive_recurrent_hgrn
from fla.ops.kda.gate import naive_kda_gate
from fla.ops.kda.naive import naive_recurrent_kda
from fla.ops.retention.naive import naive_retention
from torch import Tensor, nn

from space.mixers import Shape

GATES = {"swish": F.silu, "sigmoid": torch.sigmoid}  # of fla's gated norm, by the name of its activation


def build(mixer: str, shape: Shape, layer_idx: int) -> nn.Module:
    """fla's layer of this mixer and shape."""
    common: dict[str, Any] = {"hidden_size": shape.width, "layer_idx": layer_idx, "norm_eps": 1e-6}
    if mixer == "mamba2":
        return mamba2.Mamba2(head_dim=shape.value_dim, state_size=shape.key_dim, chunk_size=16, **common)
    common["use_short_conv"] = shape.conv
    expand = {"expand_k": shape.keys / shape.width, "expand_v": shape.values / shape.width, "num_heads": shape.heads}
    if mixer == "hgrn":
        return hgrn.HGRNAttention(expand_ratio=shape.values // shape.width, **common)
    if mixer == "hgrn2":
        return hgrn2.HGRN2Attention(num_heads=shape.heads, expand_ratio=None, **common)
    if mixer in ("gated_deltanet", "kda"):
        layer = gated_deltanet.GatedDeltaNet if mixer == "gated_deltanet" else kda.KimiDeltaAttention
        return layer(num_heads=shape.heads, head_dim=shape.key_dim, expand_v=shape.value_dim / shape.key_dim, **common)
    layer = {
        "retnet": multiscale_retention.MultiScaleRetention,
        "gla": gla.GatedLinearAttention,
        "deltanet": delta_net.DeltaNet,
    }[mixer]
    return layer(**expand, **common)


def replace_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every Triton function that the layers of `build` call."""
    for module in (gla, hgrn2):
        for name in ("chunk_gla", "fused_recurrent_gla"):
            monkeypatch.setattr(module, name, _gla)
    for name in ("chunk_hgrn", "fused_recurrent_hgrn"):
        monkeypatch.setattr(hgrn, name, lambda x, g, **_: naive_recurrent_hgrn(x, g))
    for name in ("chunk_retention", "fused_recurrent_retention"):
        monkeypatch.setattr(multiscale_retention, name, _retention)
    for name in ("chunk_delta_rule", "fused_recurrent_delta_rule"):
        monkeypatch.setattr(delta_net, name, _delta)
    for name in ("chunk_gated_delta_rule", "fused_recurrent_gated_delta_rule"):
        monkeypatch.setattr(gated_deltanet, name, _gated_delta)
    for name in ("chunk_kda", "fused_recurrent_kda"):
        monkeypatch.setattr(kda, name, _kda)
    monkeypatch.setitem(mamba2.ACT2FN, "silu", F.silu)
    monkeypatch.setattr(gated_deltanet.GatedDeltaNet, "_use_fused_qkv_conv", lambda self, *_, **__: False)
    monkeypatch.setattr(hgrn, "swiglu", lambda x, y: F.silu(x) * y)
    monkeypatch.setattr(hgrn2, "swish", F.silu)
    monkeypatch.setattr(
        hgrn2, "rms_norm_linear", lambda x, w, _, ow, __: F.linear(F.rms_norm(x, w.shape, w, eps=1e-5), ow)
    )
    monkeypatch.setattr(RMSNorm, "forward", lambda self, x: F.rms_norm(x, x.shape[-1:], self.weight, self.eps))
    monkeypatch.setattr(
        FusedRMSNormGated,
        "forward",
        lambda self, x, g: F.rms_norm(x, x.shape[-1:], self.weight, self.eps) * GATES[self.activation](g),
    )
    monkeypatch.setattr(
        RMSNormGated, "forward", lambda self, x, z: F.rms_norm(x * F.silu(z), x.shape[-1:], self.weight, self.eps)
    )
    monkeypatch.setattr(ShortConvolution, "forward", _short_conv)
    monkeypatch.setattr(RotaryEmbedding, "forward", lambda self, q, k, **_: (rotate(q), rotate(k)))


def _gla(q: Tensor, k: Tensor, v: Tensor, g: Tensor | None = None, gk: Tensor | None = None, **_: Any) -> Any:
    return naive_recurrent_gla(q, k, v, g if gk is None else gk)


def _heads_first(op: Any, *tensors: Tensor) -> Tensor:
    return op(*(x.transpose(1, 2) for x in tensors)).transpose(1, 2)


def _l2norm(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def _retention(q: Tensor, k: Tensor, v: Tensor, **_: Any) -> Any:
    return _heads_first(naive_retention, q, k, v), None


def _delta(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, **_: Any) -> Any:
    return _heads_first(lambda *x: delta_rule_recurrence(*x)[0], _l2norm(q), _l2norm(k), v, beta), None


def _gated_delta(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, **rest: Any) -> Any:
    decay = naive_gdn_gate(g, rest["A_log"], rest["dt_bias"])
    return naive_recurrent_gated_delta_rule(_l2norm(q), _l2norm(k), v, beta.sigmoid(), decay)


def _kda(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, **rest: Any) -> Any:
    decay = naive_kda_gate(g, rest["A_log"], rest["dt_bias"])
    return naive_recurrent_kda(_l2norm(q), _l2norm(k), v, decay, beta.sigmoid())


def _short_conv(self: ShortConvolution, x: Tensor, **_: Any) -> tuple[Tensor, None]:
    y = nn.Conv1d.forward(self, x.mT)[..., : x.shape[1]].mT
    return (F.silu(y) if self.activation else y), None


def rotate(x_BTHd: Tensor) -> Tensor:
    """fla's rotary embedding in its reference form."""
    frequencies = RotaryEmbedding(x_BTHd.shape[-1]).inv_freq
    angles = torch.outer(torch.arange(x_BTHd.shape[1], dtype=torch.float32), frequencies)
    return rotary_embedding_ref(x_BTHd, angles.cos(), angles.sin())
