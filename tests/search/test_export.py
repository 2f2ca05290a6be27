"""Exported folders against flash-linear-attention itself: its configuration classes, its models, their sizes."""

import inspect
import json
from pathlib import Path
from typing import Any

import fla  # noqa: F401  registers the model types
import pytest
import torch
from fla.models.configuration_utils import get_attention_spec
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from search.export import export, read
from search.export.fla import MODELS, fla_config
from space import BACKBONES, SCALES, Design, Scale, cost
from space.cost import matched
from tests.strategies import designs

SCALE = SCALES["340m"]
EXPORTABLE = [backbone for backbone in BACKBONES if backbone in MODELS]
ADDED = {"model_type", "architectures", "plait"}
DESIGNS = [
    *(f"4x{backbone}" for backbone in EXPORTABLE),
    *(f"4x{backbone}+full@1,3" for backbone in EXPORTABLE),
    "4xfull",
    "4xfull:heads=8:kv_heads=2",
    "4xwindow:size=128",
    "4xgla:conv=on:expand_k=1.0:heads=4+full:kv_heads=4@2",
    "4xgla+full@1+window:size=128@2",
    "4xgated_deltanet:conv=off:expand_v=2.0",
    "4xkda:conv=off:expand_v=2.0",
    "4xkda:heads=4:expand_k=0.5+full:kv_heads=4@2",
    "4xhgrn:expand_ratio=2:conv=on",
    "4xhgrn2:heads=16:conv=on",
    "4xdeltanet:heads=4:expand_v=2.0",
    "3xfull+gla@0",
]


def write(text: str, folder: Path, **given: Any) -> list[Path]:
    return export(Design.parse(text), SCALE, folder, **{"provenance": {}, "scores": {}, **given})


@pytest.mark.parametrize("text", DESIGNS)
def test_export_load_and_read_back_give_the_same_design_digest(text: str, tmp_path: Path) -> None:
    write(text, tmp_path / "model")
    digest = Design.parse(text).digest
    assert read(json.loads((tmp_path / "model/config.json").read_text())).digest == digest

    AutoConfig.from_pretrained(tmp_path / "model").save_pretrained(tmp_path / "saved")
    assert read(json.loads((tmp_path / "saved/config.json").read_text())).digest == digest


@pytest.mark.parametrize("text", DESIGNS)
def test_every_field_of_flas_configuration_is_written_and_no_other(text: str) -> None:
    config = fla_config(Design.parse(text), SCALE)
    known = set(inspect.signature(CONFIG_MAPPING[config["model_type"]]).parameters) - {"kwargs"}
    assert config.keys() - ADDED == known


@pytest.mark.parametrize("text", DESIGNS)
def test_fla_builds_each_layer_as_the_design_says(text: str, tmp_path: Path) -> None:
    design = Design.parse(text)
    write(text, tmp_path / "model")
    config = AutoConfig.from_pretrained(tmp_path / "model")
    assert config.num_hidden_layers == design.depth
    if config.model_type == "transformer":
        built = ["F" if config.window_size is None else "W"] * design.depth
    else:
        letter = Design.parse(f"1x{design.family}").strip
        specs = [get_attention_spec(config.attn, layer_idx=index) for index in range(design.depth)]
        built = [letter if spec is None else "F" if spec["window_size"] is None else "W" for spec in specs]
    assert "".join(built) == design.strip


@pytest.mark.parametrize("text", DESIGNS)
def test_the_built_model_has_the_parameters_that_cost_says(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fla.layers.attn.flash_attn_func", "only asked whether it is there")
    write(text, tmp_path / "model")
    config = AutoConfig.from_pretrained(tmp_path / "model")
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    assert type(model).__name__ == MODELS[Design.parse(text).family][1]
    assert sum(parameter.numel() for parameter in model.parameters()) == cost(Design.parse(text), SCALE).parameters


@given(designs(max_depth=6))
def test_any_design_is_exported_or_refused_with_a_reason(design: Design) -> None:
    try:
        config = fla_config(design, SCALE)
    except ValueError as error:
        assert design.text in str(error)
    else:
        assert read(json.loads(json.dumps(config))) == design


@given(st.sampled_from(EXPORTABLE), st.integers(1, 12), st.data())
def test_attention_layers_are_sorted_distinct_and_in_range(backbone: str, depth: int, data: st.DataObject) -> None:
    full = data.draw(st.sets(st.integers(0, depth - 1), max_size=depth - 1))
    config = fla_config(Design.hybrid(depth, backbone, full), SCALE)
    assert (config["attn"] or {"layers": []})["layers"] == sorted(full)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("4xgla+hgrn@1", "one linear backbone, this has gla, hgrn"),
        ("4xgla+full:rope=off@1", r"rotary embedding \(rope=off\)"),
        ("4xgla+gla:conv=on@1", "all gla layers have the same options"),
        ("4xretnet:conv=on", r"never builds the short convolution \(conv=on\)"),
        ("4xmamba2", "Mamba-2 model has layers without an MLP"),
        ("4xmamba2+full@1", "Mamba-2 model has layers without an MLP and no attention"),
        ("4xfull+window:size=8@1", "the same attention"),
        ("4xgla:heads=3", "heads = 3: must divide"),
    ],
)
def test_what_fla_cannot_express_is_refused_and_nothing_is_written(text: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=reason):
        write(text, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_empty_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(ValueError, match="must be new or empty"):
        write("4xgla", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_nothing_half_written_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", killed)
        with pytest.raises(KeyboardInterrupt):
            write("4xgla", tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
    written = write("4xgla", tmp_path / "model")
    assert sorted(written) == sorted((tmp_path / "model").iterdir())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_head": 4}, r"config num_head: no such field \(did you mean 'num_heads'\?\)"),
        ({"expand_k": 1.0}, r"config expand_k = 1\.0: must be 0\.5 for 4xgla\+full@1"),
        ({"attn": None}, r"config attn = None: must be .*'layers': \[1\]"),
        ({"plait": {}}, r"config plait = {}: must hold design, scale and context"),
    ],
)
def test_a_configuration_that_builds_another_model_is_refused(change: dict[str, Any], message: str) -> None:
    config = fla_config(Design.parse("4xgla+full@1"), SCALE)
    with pytest.raises(ValueError, match=message):
        read(config | change)


def test_a_missing_field_is_refused() -> None:
    config = fla_config(Design.parse("4xgated_deltanet"), SCALE)
    del config["head_dim"]
    with pytest.raises(ValueError, match="config head_dim: missing, must be 128"):
        read(config)


def test_the_readme_says_what_it_is_and_how_it_scored(tmp_path: Path) -> None:
    scores = {"recall": 0.91, "recall_low": 0.88, "recall_high": 0.93, "lm_bits_per_byte": 2.5}
    write("4xgla+full@1", tmp_path / "model", provenance={"search": "first", "protocol": "screen"}, scores=scores)
    text = (tmp_path / "model/README.md").read_text()
    for said in ("LFLL", "| recall | 0.91 (0.88 to 0.93) |", "| lm_bits_per_byte | 2.5 |", "| search | first |", "MiB"):
        assert said in text
    assert "recall_low" not in text


@pytest.mark.parametrize("text", ["2xretnet", "2xgla+full@1", "2xgla:heads=8", "2xkda:expand_v=2.0"])
def test_a_design_of_equal_state_is_exported_in_the_shape_it_was_scored_in(text: str) -> None:
    design, scale = Design.parse(text), matched(None, SCALE, "state")
    config = fla_config(design, scale)
    assert read(config) == design and config["plait"]["scale"]["state_bytes"] == 4 * 1024 * 128
    assert config != fla_config(design, SCALE)
    heads, keys = config["num_heads"], config.get("expand_k", 1) * 1024
    keys = config.get("head_dim", keys / heads) * heads
    values = config["expand_v"] * (keys if "head_dim" in config else 1024)
    assert 4 * keys * values / heads == 4 * 1024 * 128


def test_dimensions_of_another_scale_are_written() -> None:
    scale = Scale(name="tiny", width=128, heads=2, state_heads=2, mlp_dim=256, vocab=64)
    config = fla_config(Design.parse("2xgated_deltanet+full@1"), scale, context=512)
    assert (config["hidden_size"], config["vocab_size"], config["head_dim"]) == (128, 64, 64)
    assert config["attn"]["num_heads"] == 2
    assert config["max_position_embeddings"] == 512


@pytest.mark.parametrize("backbone", ["kda", "gated_deltanet"])
def test_a_ratio_that_no_float_holds_gives_the_head_size_of_the_design(backbone: str) -> None:
    scale = Scale(name="odd", width=1760, heads=10, state_heads=10, mlp_dim=256, vocab=64)
    design = Design.parse(f"1x{backbone}:expand_v={240 / 176!r}")
    config = fla_config(design, scale)
    assert int(config["head_dim"] * config["expand_v"]) == 240
