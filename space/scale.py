"""A scale is the set of dimensions a design is built at: small for a proxy, large for deployment."""

from dataclasses import asdict, dataclass


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Dimensions shared by every layer. `heads` serves attention, `state_heads` the linear backbones.

    With `state_bytes` every linear layer takes a shape whose recurrent state has as many bytes (`MixerSpec.shape`).
    Raises ValueError when a dimension is not positive or the width does not divide into the heads.
    """

    name: str
    width: int
    heads: int
    state_heads: int
    mlp_dim: int
    vocab: int
    state_bytes: int | None = None

    def __post_init__(self) -> None:
        optional = () if self.state_bytes is None else ("state_bytes",)
        for field in ("width", "heads", "state_heads", "mlp_dim", "vocab", *optional):
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"scale {field} = {value!r}: must be a whole number of at least 1")
        for field in ("heads", "state_heads"):
            if self.width % getattr(self, field):
                raise ValueError(f"scale {field} = {getattr(self, field)}: must divide the width {self.width}")

    def to_dict(self) -> dict[str, int | str]:
        """The fields; `state_bytes` only where it is set."""
        return {name: value for name, value in asdict(self).items() if value is not None}


SCALES: dict[str, Scale] = {
    scale.name: scale
    for scale in (
        Scale(name="340m", width=1024, heads=16, state_heads=8, mlp_dim=2816, vocab=32000),
        Scale(name="1.3b", width=2048, heads=32, state_heads=8, mlp_dim=5632, vocab=32000),
    )
}
