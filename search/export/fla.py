"""A design as a model folder of flash-linear-attention 0.6.0: `config.json` and a README.

fla ignores unknown keys and fills missing ones with defaults of its own, so every field of the model's configuration
is written, and `read` refuses a configuration that no longer says what its design says.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from search.export.readme import readme
from space.cost import layer_shapes
from space.design import Design, nearest
from space.mixers import BACKBONES, Shape
from space.scale import Scale

CONTEXT = 4096
MODELS = {
    "hgrn": ("hgrn", "HGRNForCausalLM"),
    "retnet": ("retnet", "RetNetForCausalLM"),
    "gla": ("gla", "GLAForCausalLM"),
    "hgrn2": ("hgrn2", "HGRN2ForCausalLM"),
    "deltanet": ("delta_net", "DeltaNetForCausalLM"),
    "gated_deltanet": ("gated_deltanet", "GatedDeltaNetForCausalLM"),
    "kda": ("kda", "KDAForCausalLM"),
    "attention": ("transformer", "TransformerForCausalLM"),
}
ADDED_BY_TRANSFORMERS = {"transformers_version", "dtype", "torch_dtype", "_name_or_path"}
LEFT_OUT_BY_TRANSFORMERS = {"use_cache", "pad_token_id", "bos_token_id", "eos_token_id", "tie_word_embeddings"}


def export(
    design: Design,
    scale: Scale,
    out_dir: Path,
    *,
    provenance: Mapping[str, object],
    scores: Mapping[str, float],
    context: int = CONTEXT,
) -> list[Path]:
    """Writes `out_dir` whole or not at all, and returns the files in it.

    Raises ValueError where fla cannot express the design, or when the folder exists and is not empty.
    """
    files = {
        "config.json": json.dumps(fla_config(design, scale, context), indent=2) + "\n",
        "README.md": readme(design, scale, context, MODELS[design.family], provenance, scores),
    }
    if out_dir.exists() and (not out_dir.is_dir() or any(out_dir.iterdir())):
        raise ValueError(f"output folder = {str(out_dir)!r}: must be new or empty")
    out_dir.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{out_dir.name}.", dir=out_dir.parent))
    try:
        for name, text in files.items():
            (aside / name).write_text(text, encoding="utf-8")
        aside.chmod(0o755)
        os.replace(aside, out_dir)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    return [out_dir / name for name in files]


def read(config: Mapping[str, Any]) -> Design:
    """The design that an exported `config.json` was written from.

    Raises ValueError for an unknown, missing or changed field: the model it builds would be another one.
    """
    try:
        source = config["plait"]
        design, scale = Design.parse(source["design"]), Scale(**source["scale"])
        expected = fla_config(design, scale, source["context"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"config plait = {config.get('plait')!r}: must hold design, scale and context") from error
    for name in config.keys() - expected.keys() - ADDED_BY_TRANSFORMERS:
        raise ValueError(f"config {name}: no such field{nearest(name, expected)}")
    for name in sorted(expected.keys() - config.keys() - LEFT_OUT_BY_TRANSFORMERS):
        raise ValueError(f"config {name}: missing, must be {expected[name]!r}")
    for name in expected.keys() & config.keys():
        if config[name] != expected[name]:
            raise ValueError(f"config {name} = {config[name]!r}: must be {expected[name]!r} for {design}")
    return design


def fla_config(design: Design, scale: Scale, context: int = CONTEXT) -> dict[str, Any]:
    """Every field of the fla configuration that builds `design`. Raises ValueError where fla has no way to say it."""

    def refuse(reason: str) -> ValueError:
        return ValueError(f"design {design}: fla cannot express it: {reason}")

    if design.family == "mixture":
        raise refuse(f"a model has one linear backbone, this has {', '.join(design.backbones)}")
    if design.family == "mamba2":
        raise refuse("its Mamba-2 model has layers without an MLP and no attention; this design's layers have an MLP")
    linear: set[Shape] = set()
    attention: dict[Shape, list[int]] = {}
    for index, (layer, shape) in enumerate(zip(design.layers, layer_shapes(design, scale), strict=True)):
        if layer.mixer in BACKBONES:
            linear.add(shape)
        else:
            attention.setdefault(shape, []).append(index)
    if any(not shape.rope for shape in attention):
        raise refuse("its attention always has rotary embedding (rope=off)")
    if len(linear) > 1:
        raise refuse(f"all {design.family} layers have the same options")
    if not linear and len(attention) > 1:
        raise refuse("all layers of a model without a linear backbone have the same attention")

    model_type, architecture = MODELS[design.family]
    config = {"model_type": model_type, "architectures": [architecture]} | _common(design, scale, context)
    if linear:
        shape = linear.pop()
        if design.family == "retnet" and shape.conv:
            raise refuse("its RetNet model never builds the short convolution (conv=on)")
        config |= _linear(design.family, shape) | {"attn": _attention(attention)}
        if design.family == "kda":
            del config["fuse_linear_cross_entropy"]  # its configuration alone has no such field
    else:
        shape = next(iter(attention))
        config |= _attention_fields(shape) | {"qk_norm": False, "elementwise_affine": True}
    return config | {"plait": {"design": design.text, "scale": scale.to_dict(), "context": context}}


def _common(design: Design, scale: Scale, context: int) -> dict[str, Any]:
    return {
        "hidden_size": scale.width,
        "num_hidden_layers": design.depth,
        "intermediate_size": scale.mlp_dim,
        "hidden_ratio": None,
        "hidden_act": "swish",
        "vocab_size": scale.vocab,
        "max_position_embeddings": context,
        "norm_eps": 1e-6,
        "initializer_range": 0.02,
        "tie_word_embeddings": False,
        "use_cache": True,
        "pad_token_id": None,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "fuse_norm": True,
        "fuse_swiglu": True,
        "fuse_cross_entropy": True,
        "fuse_linear_cross_entropy": False,
        "use_l2warp": False,
        "attnres_block_size": None,
    }


def _linear(backbone: str, shape: Shape) -> dict[str, Any]:
    """The fields that belong to one backbone's model."""
    conv = {"use_short_conv": shape.conv, "conv_size": 4}
    expand = {"expand_k": shape.keys / shape.width, "expand_v": shape.values / shape.width}
    heads = {"attn_mode": "chunk", "num_heads": shape.heads}
    gated = {"num_kv_heads": shape.heads, "feature_map": None, "use_output_gate": True, "elementwise_affine": True}
    bounded = {"use_lower_bound": True, "elementwise_affine": True}
    match backbone:
        case "hgrn":
            ratio = {"attn_mode": "fused_recurrent", "expand_ratio": shape.values // shape.width}
            return ratio | conv | bounded
        case "hgrn2":
            return heads | {"expand_ratio": shape.key_dim} | conv | bounded
        case "retnet":
            return heads | expand | conv | gated
        case "gla":
            return heads | expand | conv | gated | {"clamp_min": None, "use_gk": True, "use_gv": False}
        case "deltanet":
            return heads | expand | conv | {
                "use_gate": False, "allow_neg_eigval": False, "use_beta": True, "use_output_norm": True,
                "qk_norm": "l2", "qk_activation": "silu",
            }  # fmt: skip
        case "kda":
            return heads | conv | {
                "num_v_heads": shape.heads, "head_dim": shape.key_dim, "expand_v": shape.value_dim / shape.key_dim,
                "allow_neg_eigval": False, "safe_gate": False, "lower_bound": None,
            }  # fmt: skip
        case "gated_deltanet":
            return heads | conv | {
                "num_v_heads": shape.heads, "head_dim": shape.key_dim, "expand_v": shape.value_dim / shape.key_dim,
                "use_gate": True, "allow_neg_eigval": False, "output_gate_activation": "swish",
            }  # fmt: skip
    raise AssertionError(backbone)


def _attention(layers: Mapping[Shape, Iterable[int]]) -> dict[str, Any] | list[dict[str, Any]] | None:
    """fla's `attn`: nothing, one kind of attention, or a list of kinds."""
    kinds = [{"layers": list(where)} | _attention_fields(shape) for shape, where in layers.items()]
    return kinds if len(kinds) > 1 else kinds[0] if kinds else None


def _attention_fields(shape: Shape) -> dict[str, Any]:
    return {
        "num_heads": shape.heads,
        "num_kv_heads": shape.kv_heads,
        "qkv_bias": False,
        "window_size": shape.window,
        "rope_theta": 10000.0,
    }
