import pytest
from hypothesis import given

from space import Design, Layer
from tests.strategies import designs, layers


@given(designs())
def test_text_read_back_is_the_same_design(design: Design) -> None:
    again = Design.parse(design.text)
    assert again == design
    assert again.text == design.text
    assert again.digest == design.digest


@given(layers())
def test_a_layer_read_back_is_the_same_layer(layer: Layer) -> None:
    assert Layer.parse(str(layer)) == layer


@given(designs(), designs())
def test_designs_are_equal_exactly_when_texts_and_digests_are(one: Design, other: Design) -> None:
    assert (one == other) == (one.text == other.text) == (one.digest == other.digest)


@given(designs())
def test_text_needs_no_shell_quotes(design: Design) -> None:
    assert set(design.text) <= set("abcdefghijklmnopqrstuvwxyz_0123456789+:=@,.-")


@given(designs())
def test_strip_and_full_layers_agree(design: Design) -> None:
    assert len(design.strip) == design.depth
    assert design.full_layers == tuple(index for index, letter in enumerate(design.strip) if letter == "F")


def test_a_digest_is_the_same_on_every_machine() -> None:
    assert Design.parse("12xgated_deltanet+full@2,5,8,11").digest == "cad50795392eb535"


@pytest.mark.parametrize(
    ("given_text", "canonical"),
    [
        ("4xgla+full@1-2", "4xgla+full@1,2"),
        ("4xgla+full@3,1", "4xgla+full@1,3"),
        ("3xgla+full@1-2", "3xfull+gla@0"),
        ("4xgla:conv=off:expand_k=0.5", "4xgla"),
        ("4xgla:heads=4:conv=on", "4xgla:conv=on:heads=4"),
        ("2xfull:rope=on", "2xfull"),
    ],
)
def test_there_is_one_canonical_text(given_text: str, canonical: str) -> None:
    assert Design.parse(given_text).text == canonical


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("gla", 1, "must start with depth and mixer"),
        ("0xgla", 1, "depth = 0: must be in 1..256"),
        ("257xgla", 1, "depth = 257: must be in 1..256"),
        ("4xglaa", 3, "did you mean 'gla'?"),
        ("4xgla:cnv=on", 3, "did you mean 'conv'?"),
        ("4xgla:conv=yes", 3, "gla conv = 'yes': must be on or off"),
        ("4xgla:conv", 3, "must be option=value"),
        ("4xgla:heads=0", 3, "must be a whole number in 1..1048576"),
        ("4xgla:conv=on:conv=off", 3, "given twice"),
        ("4xgla:expand_k=nan", 3, "must be a number in 0.125..4.0"),
        ("4xgla+full", 7, "must say where"),
        ("4xgla+fuul@1", 7, "did you mean 'full'?"),
        ("4xgla+full@4", 12, "layer 4: must be in 0..3"),
        ("4xgla+full@2-1", 12, "must be in 0..3"),
        ("4xgla+full@", 12, "must be a layer index or a range"),
        ("4xgla+full@1,1", 12, "layer 1: given twice"),
        ("4xgla+full@1+window:size=8@1", 28, "layer 1: given twice"),
        ("4xwindow", 3, "window size: missing"),
    ],
)
def test_an_error_names_the_place_and_what_is_allowed(text: str, place: int, reason: str) -> None:
    with pytest.raises(ValueError) as error:
        Design.parse(text)
    assert f"at character {place}: " in str(error.value)
    assert reason in str(error.value)


def test_family_names_the_backbone() -> None:
    assert Design.parse("4xgla+full@1").family == "gla"
    assert Design.parse("4xgla+hgrn@1").family == "mixture"
    assert Design.parse("4xfull").family == "attention"
