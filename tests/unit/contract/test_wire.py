from dataclasses import dataclass, field

import pytest

from promptgroup_contract.wire import COUNT, FLAG, SHOWN, TEXT, Hidden, Object, UnfitError, codec_of, wire


@dataclass(frozen=True)
class Pixel:
    """A point of a picture."""

    x: int = field(metadata=wire("x", COUNT))
    lit: bool = field(default=False, metadata=wire("isLit", FLAG))
    note: str = field(default="", metadata=wire("note", TEXT))
    text: str = field(default="", metadata=wire("text", Hidden(), inline_only=True))
    behind: "Pixel | None" = None


@dataclass(frozen=True)
class Layer:
    """A later version of the same, which has one more field."""

    name: str
    pixel: Pixel = field(metadata=wire("pixel", Object(Pixel)))


def test_a_value_is_read_as_it_was_written_and_defaults_are_not_written():
    layer = Layer("a", Pixel(1, lit=True))
    assert codec_of(Layer).write(layer) == {"pixel": {"x": 1, "isLit": True}}
    assert codec_of(Layer).read({"pixel": {"x": 1, "isLit": True, "later": 1}}, {"name": "a"}) == layer


def test_what_only_files_have_is_written_there_alone():
    pixel = Pixel(1, text="secret")
    assert codec_of(Pixel).write(pixel) == {"x": 1}
    assert codec_of(Pixel).read(codec_of(Pixel).write(pixel, whole=True)) == pixel


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (7, "at is a number, expected an object"),
        ({}, "at: pixel is missing, expected an object"),
        ({"pixel": {"x": -1}}, "at: pixel: x is -1, expected a whole number from 0"),
        ({"pixel": {"x": 1, "isLit": 1}}, "at: pixel: isLit is 1, expected true or false"),
        ({"pixel": {"x": 1, "text": 5}}, "at: pixel: text is a number, expected a string"),
    ],
)
def test_an_error_names_the_place_the_value_and_what_is_expected(data, message):
    with pytest.raises(UnfitError) as refused:
        codec_of(Layer).read(data, {"name": "a"})
    assert refused.value.text("at") == message


@pytest.mark.parametrize("value", [True, 1.5, "1", [1] * 10_000, {"a": "b" * 10_000}, "9" * 10_000, float("inf")])
def test_an_error_quotes_a_part_of_what_is_long(value):
    with pytest.raises(UnfitError) as refused:
        codec_of(Pixel).read({"x": value})
    assert len(refused.value.text("at")) < SHOWN + 60
