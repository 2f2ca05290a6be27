"""What a design costs at a scale: parameters, FLOPs a token, and bytes of memory while it generates."""

from dataclasses import dataclass, replace

from space.design import Design
from space.mixers import FLOAT32, MIXERS, Shape
from space.scale import Scale

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Parameters (total and those of the mixers alone), bytes and forward FLOPs a token of a whole model."""

    parameters: int
    mixer_parameters: int
    kv_bytes: int
    state_bytes: int
    flops_per_token: float

    @property
    def memory_bytes(self) -> int:
        """KV cache plus recurrent and convolution state."""
        return self.kv_bytes + self.state_bytes


def layer_shapes(design: Design, scale: Scale) -> tuple[Shape, ...]:
    """The shape of every layer. Raises ValueError naming the layer, the field, its value and what is allowed."""
    shapes = []
    for index, layer in enumerate(design.layers):
        try:
            shapes.append(MIXERS[layer.mixer].shape(scale, layer.spec_options))
        except ValueError as error:
            raise ValueError(f"layer {index} of {design} at scale {scale.name}: {error}") from None
    return tuple(shapes)


MATCHES = ("width", "parameters", "state")
_MLP_STEP = 8  # MLP widths are multiples of this


def matched(design: Design | None, scale: Scale, match: str) -> Scale:
    """The scale at which `design` is compared; without a design, what is the same for all of them.

    `width`: as it is.
    `parameters`: the MLP width that brings the design nearest to pure attention's parameters. Its mixers and the memory
    they need stay as they are.
    `state`: every linear layer's recurrent state has the bytes of one square float32 matrix a head at the scale's own
    heads, 4 * width^2 / state_heads. Deltanet, gated_deltanet, hgrn2 and kda have it as they are; at every scale here
    retnet, gla and mamba2 reach it exactly, by their heads, keys or state. Hgrn's vector never does: it is refused.
    Equal a layer, not a model, for how many linear layers there are is what a search asks. The short convolution's
    memory comes on top.

    Raises ValueError for another `match`.
    """
    if match not in MATCHES:
        raise ValueError(f"match = {match!r}: must be one of {', '.join(MATCHES)}")
    if match == "state":
        return replace(scale, state_bytes=FLOAT32 * scale.width**2 // scale.state_heads)
    if match == "width" or design is None:
        return scale
    attention = Design.parse(f"{design.depth}xfull")
    spare = cost(attention, scale).parameters - cost(design, replace(scale, mlp_dim=_MLP_STEP)).parameters
    steps = max(1, 1 + round(spare / (3 * scale.width * design.depth * _MLP_STEP)))
    return replace(scale, mlp_dim=steps * _MLP_STEP)


def cost(design: Design, scale: Scale, *, context: int = 4096, batch: int = 1, dtype: str = "bfloat16") -> Cost:
    """Cost of `design` at `scale`, as fla's cache allocates it for `batch` sequences of `context` tokens.

    Raises ValueError for a context or batch below 1, an unknown dtype, or shapes that do not fit the scale.
    """
    for field, value in (("context", context), ("batch", batch)):
        if value < 1:
            raise ValueError(f"{field} = {value}: must be at least 1")
    if dtype not in DTYPE_BYTES:
        raise ValueError(f"dtype = {dtype!r}: must be one of {', '.join(DTYPE_BYTES)}")
    element = DTYPE_BYTES[dtype]
    mixer_parameters, kv, state, flops = 0, 0, 0, 0.0
    shared = 0
    for layer, shape in zip(design.layers, layer_shapes(design, scale), strict=True):
        spec = MIXERS[layer.mixer]
        parameters = spec.parameters(shape)
        shared = max(shared, spec.shared_parameters(shape, design.depth))
        mixer_parameters += parameters
        kv += spec.kv_bytes(shape, context, element)
        state += spec.state_bytes(shape, element) + spec.conv_bytes(shape, element)
        flops += spec.flops(shape, context) + 2.0 * parameters
    mixer_parameters += shared
    mlp = 3 * scale.width * scale.mlp_dim
    head = scale.width * scale.vocab
    norms = (2 * design.depth + 1) * scale.width
    return Cost(
        parameters=mixer_parameters + design.depth * mlp + 2 * head + norms,
        mixer_parameters=mixer_parameters,
        kv_bytes=batch * kv,
        state_bytes=batch * state,
        flops_per_token=flops + 2.0 * (design.depth * mlp + head),
    )
