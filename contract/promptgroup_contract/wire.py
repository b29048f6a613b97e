"""Reads and writes the values of the contract as JSON, by what their fields say of themselves.

A field is described where its dataclass has it, and nowhere else:

    kv_tokens: int = field(default=0, metadata=wire("kvTokens", COUNT))

and its meaning is the docstring below it. The codec here, the schema of the CRD and the reference page follow from
that. Unknown fields are ignored, and a field that has its default is not written, so that programs of different
versions read each other.
"""

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any

from promptgroup_contract.names import LONGEST_NAME, OBJECT_NAME

MOST = (1 << 53) - 1
"""Largest number that is taken where a field has no limit of its own: every program reads it from JSON as it was
written, and sums of such numbers can be written, too."""
SHOWN = 80
"""Most characters of a value in an error: the author of a PromptRoute chooses the value."""

Schema = dict[str, Any]
OBJECT_NAME_SCHEMA: Schema = {"type": "string", "pattern": OBJECT_NAME, "maxLength": LONGEST_NAME}
"""Schema of the name of an object of the cluster."""
Nested = Callable[[type], Schema]
"""Returns the schema of a class."""


class UnfitError(ValueError):
    """A value that cannot be used.

    Args:
        problem: says so in words that follow the field's name, as in `is 7, expected a string`.
        path: names of the field and of the fields around it, the outermost first.
    """

    def __init__(self, problem: str, *path: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = list(path)

    def within(self, key: str) -> "UnfitError":
        """Return the error with the name of a field around those of its path; an index joins the name."""
        if self.path and self.path[0].startswith("["):
            self.path[0] = key + self.path[0]
        else:
            self.path.insert(0, key)
        return self

    def text(self, at: str) -> str:
        """Return the whole message; `at` names the object that was read."""
        *around, last = ["", *self.path]
        place = ".".join(around[1:])
        return (
            ": ".join(part for part in (at, place, f"{last} {self.problem}") if part)
            if last
            else f"{at} {self.problem}"
        )


class Kind:
    """The form of a value in JSON: a text, unless a subclass says otherwise."""

    expected = "a string"
    quoted = True
    """True if errors may quote the value."""
    plain = True
    """True if the value is written as it is."""

    def read(self, value: Any) -> Any:
        """Return the value of what was parsed from JSON, which is not null.

        Raises:
            UnfitError: it is none of this kind.
        """
        if not isinstance(value, str):
            raise self.unfit(value)
        return value

    def write(self, value: Any, whole: bool) -> Any:
        """Return what `read` makes the value of; `whole` as in `Codec.write`."""
        del whole
        return value

    def schema(self, nested: Nested) -> Schema:
        """Return the JSON schema."""
        del nested
        return {"type": "string"}

    def unfit(self, value: object, expected: str = "") -> UnfitError:
        """Return the error for a value of another kind."""
        return UnfitError(f"is {shown(value) if self.quoted else kind_of(value)}, expected {expected or self.expected}")


class LowerCase(Kind):
    """A text that is compared in lower case."""

    def read(self, value: Any) -> str:
        """Return it in lower case."""
        return str(super().read(value)).lower()


class Hidden(Kind):
    """A text of a prompt, which errors do not quote: they are logged."""

    quoted = False


class Converted(Kind):
    """A value that has a form as text.

    Args:
        parse: returns the value, or None for a text that is none.
        form: returns its text.
        expected: says which texts it takes.
    """

    plain = False

    def __init__(self, parse: Callable[[str], Any], form: Callable[[Any], str], expected: str) -> None:
        self.expected = expected
        self._parse, self._form = parse, form

    def read(self, value: Any) -> Any:
        """Return the value of a text."""
        result = self._parse(value) if isinstance(value, str) else None
        if result is None:
            raise self.unfit(value)
        return result

    def write(self, value: Any, whole: bool) -> str:
        """Return its text."""
        del whole
        return self._form(value)


class Count(Kind):
    """A whole number within bounds."""

    def __init__(self, least: int = 0, most: int = MOST) -> None:
        self._least, self._most = least, most
        self.expected = f"a whole number from {least}"

    def read(self, value: Any) -> int:
        """Return the number."""
        if not isinstance(value, int) or isinstance(value, bool) or value < self._least:
            raise self.unfit(value)
        if value > self._most:
            raise self.unfit(value, f"a whole number of at most {self._most}")
        return value

    def schema(self, nested: Nested) -> Schema:
        """Return the bounds."""
        del nested
        bound = {"maximum": self._most} if self._most != MOST else {}
        return {"type": "integer", "minimum": self._least, **bound}


class Ratio(Kind):
    """A number above 0 and at most 1."""

    expected = "a number above 0 and at most 1"

    def read(self, value: Any) -> float:
        """Return the number."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
            raise self.unfit(value)
        return float(value)

    def schema(self, nested: Nested) -> Schema:
        """Return the bounds."""
        del nested
        return {"type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": 1}


class Flag(Kind):
    """A truth value."""

    expected = "true or false"

    def read(self, value: Any) -> bool:
        """Return the truth value."""
        if not isinstance(value, bool):
            raise self.unfit(value)
        return value

    def schema(self, nested: Nested) -> Schema:
        """Return the type."""
        del nested
        return {"type": "boolean"}


class EnumMember(Kind):
    """A member of an enumeration of texts."""

    plain = False

    def __init__(self, cls: type[enum.StrEnum]) -> None:
        self._members: dict[Any, enum.StrEnum] = {item.value: item for item in cls}
        self._cls = cls
        self.expected = f"one of {', '.join(self._members)}"

    def read(self, value: Any) -> enum.StrEnum:
        """Return the member."""
        member = self._members.get(value) if isinstance(value, str) else None
        if member is None:
            raise self.unfit(value)
        return member

    def write(self, value: Any, whole: bool) -> str:
        """Return its text."""
        del whole
        return str.__str__(value)  # takes half the time of `value.value`, which each slot of a table would pay

    def schema(self, nested: Nested) -> Schema:
        """Return the texts, with what the enumeration says of itself."""
        return {"type": "string", "enum": list(self._members), **nested(self._cls)}


class TextList(Kind):
    """A list of texts, none of them empty."""

    plain = False
    expected = "a list of texts"
    quoted = False

    def read(self, value: Any) -> Any:
        """Return a tuple of the texts."""
        if not isinstance(value, list):
            raise self.unfit(value)
        for index, text in enumerate(value):
            if not isinstance(text, str) or not text:
                raise UnfitError(f"is {shown(text)}, expected a text that is not empty", f"[{index}]")
        return tuple(value)

    def write(self, value: Any, whole: bool) -> list[Any]:
        """Return them in their order."""
        del whole
        return list(value)

    def schema(self, nested: Nested) -> Schema:
        """Return the type."""
        del nested
        return {"type": "array", "items": {"type": "string", "minLength": 1}}


class TextSet(TextList):
    """A set of texts, or of those members of an enumeration that this version knows: the others are left out."""

    def __init__(self, cls: type[enum.StrEnum] | None = None) -> None:
        self._members: dict[Any, enum.StrEnum] | None = {item.value: item for item in cls} if cls is not None else None

    def read(self, value: Any) -> Any:
        """Return the set."""
        texts, members = super().read(value), self._members
        return frozenset(texts) if members is None else frozenset(members[text] for text in texts if text in members)

    def write(self, value: Any, whole: bool) -> list[Any]:
        """Return them in alphabetical order."""
        del whole
        return sorted(value)


class Object(Kind):
    """A value of a class whose fields are described."""

    plain = False
    expected = "an object"
    quoted = False

    def __init__(self, cls: type) -> None:
        self.cls = cls

    def read(self, value: Any) -> Any:
        """Return the value."""
        return codec_of(self.cls).read(value)

    def write(self, value: Any, whole: bool) -> Any:
        """Return its fields."""
        return codec_of(self.cls).write(value, whole)

    def schema(self, nested: Nested) -> Schema:
        """Return the schema of its class."""
        return nested(self.cls)


class Inline(Object):
    """A value whose fields stand among those of the object around it."""


class Objects(Object):
    """A list of values of which no two have the same in one field.

    Args:
        cls: of the values.
        unique: name of that field.
        ordered: True if they are read in its order, whatever order they stand in.
    """

    expected = "a list"

    def __init__(self, cls: type, unique: str, *, ordered: bool = False) -> None:
        super().__init__(cls)
        self._unique, self._ordered = unique, ordered

    def read(self, value: Any) -> Any:
        """Return a tuple of the values."""
        if not isinstance(value, list):
            raise self.unfit(value)
        codec, made, seen = codec_of(self.cls), [], {}
        for index, item in enumerate(value):
            try:
                result = item if isinstance(item, self.cls) else codec.read(item)  # read before, in steps
            except UnfitError as error:
                raise error.within(f"[{index}]") from None
            key = getattr(result, self._unique)
            if key in seen:
                raise UnfitError(f"has {shown(key)} twice")
            seen[key] = result
            made.append(result)
        return tuple(seen[key] for key in sorted(seen)) if self._ordered else tuple(made)

    def write(self, value: Any, whole: bool) -> Any:
        """Return a list of their fields."""
        codec = codec_of(self.cls)
        return [codec.write(item, whole) for item in value]

    def schema(self, nested: Nested) -> Schema:
        """Return the schema of a list."""
        return {"type": "array", "items": nested(self.cls)}


class Keyed(Object):
    """A list of values by name, in the order of the names, where `key` is the field that has the name."""

    expected = "a list"

    def __init__(self, cls: type, key: str) -> None:
        super().__init__(cls)
        self._key = key

    def read(self, value: Any) -> Any:
        """Return a tuple of pairs of a name and a value."""
        if not isinstance(value, list):
            raise self.unfit(value)
        made: dict[str, Any] = {}
        for index, item in enumerate(value):
            try:
                result = codec_of(self.cls).read(item)
            except UnfitError as error:
                raise error.within(f"[{index}]") from None
            name = item.get(self._key)
            if not isinstance(name, str):
                raise UnfitError(f"is {shown(name)}, expected a string", f"[{index}]", self._key)
            made[name] = result
        return tuple((name, made[name]) for name in sorted(made))

    def write(self, value: Any, whole: bool) -> Any:
        """Return a list of their names and fields."""
        codec = codec_of(self.cls)
        return [{self._key: name} | codec.write(item, whole) for name, item in value]

    def schema(self, nested: Nested) -> Schema:
        """Return the schema of a list."""
        inner = nested(self.cls)
        named = {"required": [self._key], "properties": {self._key: {"type": "string"}, **inner["properties"]}}
        return {"type": "array", "items": inner | named}


TEXT, COUNT, FLAG = Kind(), Count(), Flag()


class WireField:
    """A field of a value, as its metadata describe it.

    Args:
        key: the field's name in JSON; empty for one whose fields stand among the others.
        kind: of its value.
        absent: value that is read where the field is absent, of a field that has no default.
        always: True if it is written even where it has its default.
        needed: True if it is also read only where it is present, although the class has a default for it.
        inline_only: True if only files have it, and no PromptRoute.
        api: keys of its JSON schema that the API server checks beside those of the kind.
    """

    def __init__(
        self, key: str, kind: Kind, *, absent: Any, always: bool, needed: bool, inline_only: bool, api: Schema
    ) -> None:
        self.key, self.kind, self.absent = key, kind, absent
        self.always, self.needed, self.inline_only = always, needed, inline_only
        self.api = api
        self.name = ""
        self.default: Any = MISSING

    @property
    def required(self) -> bool:
        """True if an object without it cannot be read."""
        return self.default is MISSING and self.absent is MISSING


def wire(
    key: str,
    kind: Kind,
    *,
    absent: Any = MISSING,
    always: bool = False,
    needed: bool = False,
    inline_only: bool = False,
    **api: Any,
) -> dict[str, WireField]:
    """Return the metadata of a field; `WireField` says of what."""
    return {"wire": WireField(key, kind, absent=absent, always=always, needed=needed, inline_only=inline_only, api=api)}


class Codec:
    """Reads and writes the values of a dataclass whose fields have metadata of `wire`.

    If the class has a method `check`, it is called with each value that was read; it may raise UnfitError.
    """

    def __init__(self, cls: type[Any]) -> None:
        self._cls = cls
        self._check: Callable[[Any], None] | None = getattr(cls, "check", None)
        self.fields: list[WireField] = []
        """The described fields, in their order."""
        for field in fields(cls):
            described: WireField | None = field.metadata.get("wire")
            if described is not None:
                described.name = field.name
                described.default = MISSING if described.needed else field.default
                self.fields.append(described)
        self._written: list[tuple[str, str, Kind | None, Any, bool]] = [
            (
                field.name,
                field.key,
                None if field.kind.plain else field.kind,
                MISSING if field.always else field.default,
                field.inline_only,
            )
            for field in self.fields
        ]

    def read(self, data: Any, extra: Mapping[str, Any] | None = None) -> Any:
        """Return the value of an object that was parsed from JSON; null is the same as absent.

        Args:
            data: the object.
            extra: values of fields that are not described, by the names of the fields.

        Raises:
            UnfitError: something cannot be used.
        """
        if not isinstance(data, dict):
            raise UnfitError(f"is {kind_of(data)}, expected an object")
        values: dict[str, Any] = dict(extra) if extra is not None else {}
        for field in self.fields:
            if not field.key:
                values[field.name] = field.kind.read(data)
                continue
            value = data.get(field.key)
            if value is not None:
                try:
                    values[field.name] = field.kind.read(value)
                except UnfitError as error:
                    raise error.within(field.key) from None
            elif field.absent is not MISSING:
                values[field.name] = field.absent
            elif field.default is MISSING:
                raise UnfitError(f"is missing, expected {field.kind.expected}", field.key)
        made = self._cls(**values)
        if self._check is not None:
            self._check(made)
        return made

    def write(self, value: Any, whole: bool = False) -> dict[str, Any]:
        """Return the object of a value; `whole` adds what only files have."""
        made: dict[str, Any] = {}
        for name, key, kind, default, inline_only in self._written:
            part = getattr(value, name)
            if default is not MISSING and (part is default or part == default or (inline_only and not whole)):
                continue
            if kind is None:
                made[key] = part
            elif key:
                made[key] = kind.write(part, whole)
            else:
                made.update(kind.write(part, whole))
        return made


_CODECS: dict[type, Codec] = {}


def codec_of(cls: type) -> Codec:
    """Return the codec of a class."""
    codec = _CODECS.get(cls)
    if codec is None:
        codec = _CODECS[cls] = Codec(cls)
    return codec


def shown(value: object) -> str:
    """Return a value for errors: a part of it where it is long, and only its kind where it holds others."""
    if value is None:
        return "missing"
    if isinstance(value, list | dict):
        return kind_of(value)
    text = repr(value[: SHOWN + 1] if isinstance(value, str) else value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def kind_of(value: object) -> str:
    """Return in words which kind of JSON a value is."""
    names: Iterable[tuple[Any, str]] = (
        (bool, "a truth value"), (str, "a string"), (list, "a list"), (dict, "an object"), ((int, float), "a number"),
    )  # fmt: skip
    return next((name for cls, name in names if isinstance(value, cls)), "null")
