"""The README of an exported model folder: what it is, what it costs, how it scored and how to load it."""

from collections.abc import Mapping

from space import Design, Scale, cost

_INTERVALS = {"lm_bits_per_byte": "lm"}  # metrics whose bounds have a shorter name


def readme(
    design: Design,
    scale: Scale,
    context: int,
    model: tuple[str, str],
    provenance: Mapping[str, object],
    scores: Mapping[str, float],
) -> str:
    """Markdown for the folder. `model` is fla's model type and class."""
    price = cost(design, scale, context=context)
    model_type, architecture = model
    attention = ", ".join(str(index) for index, letter in enumerate(design.strip) if letter in "FW") or "none"
    sections = [
        f"# {design}",
        f"A {scale.name} `{model_type}` model for flash-linear-attention 0.6.0, untrained: a configuration to train.",
        f"```\n{design.strip}\n```",
        _table(
            {
                "design": f"`{design}`",
                "digest": f"`{design.digest}`",
                "layers": design.depth,
                "attention layers (from 0)": attention,
                "width, MLP width, vocabulary": f"{scale.width}, {scale.mlp_dim}, {scale.vocab}",
                "parameters": f"{price.parameters / 1e6:,.1f} M",
                f"KV cache at {context:,} tokens, bfloat16": _mebibytes(price.kv_bytes),
                "recurrent and convolution state": _mebibytes(price.state_bytes),
                "forward FLOPs a token": f"{price.flops_per_token / 1e9:,.2f} G",
            }
        ),
        "## Scores\n\nOf small proxy models of this design, not of this model.",
        _table(_scores(scores)) if scores else "None were given.",
        "## Where it comes from",
        _table(provenance) if provenance else "Not recorded.",
        "## Loading",
        "```python\nimport fla  # registers the model types\n"
        "from transformers import AutoConfig, AutoModelForCausalLM\n\n"
        'model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained("."))\n```',
        *_notes(design, price.parameters, architecture),
    ]
    return "\n\n".join(sections) + "\n"


def _notes(design: Design, parameters: int, architecture: str) -> list[str]:
    notes = [f"Check what was built: `{architecture}` with {parameters:,} parameters."]
    if set(design.strip) & set("FW"):
        notes.append("Softmax attention in flash-linear-attention needs the `flash-attn` package and a GPU.")
    if design.family in ("hgrn", "hgrn2"):
        notes.append(
            "Trainers that build on torch's meta device (flame) leave this model's lower bounds unset: "
            "initialise on a real device first and start from that checkpoint."
        )
    return notes


def _scores(scores: Mapping[str, float]) -> dict[str, str]:
    rows = {}
    bounds = {f"{_INTERVALS.get(name, name)}_{end}" for name in scores for end in ("low", "high")}
    for name, value in scores.items():
        if name in bounds:
            continue
        stem = _INTERVALS.get(name, name)
        low, high = scores.get(f"{stem}_low"), scores.get(f"{stem}_high")
        interval = f" ({low:.4g} to {high:.4g})" if low is not None and high is not None else ""
        rows[name] = f"{value:.4g}{interval}"
    return rows


def _table(rows: Mapping[str, object]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())])


def _mebibytes(num_bytes: int) -> str:
    return f"{num_bytes / (1 << 20):,.2f} MiB"
