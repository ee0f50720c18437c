"""Values as JSON that come back exactly: a codec for the caches that runs no code of the data.

`dumps` takes None, bool, int, float, str, bytes, bytearray, list, tuple, dict, set, frozenset, and
the standard library's Decimal, UUID, datetime, date, time and timedelta, within each other. Their
subclasses would come back as another class, so they are refused.

There are two forms. Plain is ordinary JSON, for what JSON gives back as it was. In tagged, each
object that JSON lacks is an array whose first item is its tag, and so is each list:
`(1, [b"a"])` is `["t",1,["l",["b","YQ=="]]]`.
"""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from base64 import b64decode, b64encode
from typing import Any, Callable

_Tagger = Callable[[Any], list[Any]]

PLAIN = 0
TAGGED = 1

_SCALARS = frozenset((type(None), bool, int, float, str))

# Longer integers are hexadecimal: Python limits the digits of those that are converted from and to
# decimal, as that takes quadratic time.
_DECIMAL_BITS_MAX = 2048

_encode = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode
_decode = json.JSONDecoder().decode


def dumps(value: Any) -> tuple[int, bytes]:
    """Returns the form of a value, PLAIN or TAGGED, and its bytes.

    Fails with TypeError for an object of another class, and with RecursionError if objects are
    within each other too deeply or without an end.
    """
    if _is_plain(value):
        return PLAIN, _encode(value).encode("utf-8", "surrogatepass")
    return TAGGED, _encode(_tag(value)).encode("utf-8", "surrogatepass")


def loads(form: int, data: bytes) -> Any:
    """Returns the value of bytes. Fails with ValueError if they are damaged."""
    try:
        value = _decode(data.decode("utf-8", "surrogatepass"))
        return value if form == PLAIN else _untag(value)
    except (ArithmeticError, IndexError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"a stored value is damaged: {error!r}") from error


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind is int:
        return bool(value.bit_length() <= _DECIMAL_BITS_MAX)
    if kind in _SCALARS:
        return True
    if kind is list:
        return all(map(_is_plain, value))
    if kind is dict:
        return all(type(key) is str for key in value) and all(map(_is_plain, value.values()))
    return False


def _tag(value: Any) -> Any:
    kind = type(value)
    if kind in _SCALARS and (kind is not int or value.bit_length() <= _DECIMAL_BITS_MAX):
        return value
    tagger = _TAGGERS.get(kind)
    if tagger is None:
        raise TypeError(f"JSON does not give back an object of {kind!r} as it was")
    return tagger(value)


def _untag(value: Any) -> Any:
    if type(value) is not list:
        return value
    return _UNTAGGERS[value[0]](value[1:])


def _tag_items(tag: str) -> _Tagger:
    return lambda value: [tag, *map(_tag, value)]


def _tag_set(tag: str) -> _Tagger:
    # The order of a set's items differs between processes, and a key must not.
    return lambda value: [tag, *sorted(map(_tag, value), key=_encode)]


def _tag_bytes(tag: str) -> _Tagger:
    return lambda value: [tag, b64encode(value).decode("ascii")]


def _tag_dict(value: Any) -> list[Any]:
    return ["d", *(_tag(part) for pair in value.items() for part in pair)]


def _tag_clock(tag: str) -> _Tagger:
    def tag_clock(value: Any) -> list[Any]:
        zone = value.tzinfo
        if zone is not None:
            offset = value.utcoffset() if type(zone) is datetime.timezone else None
            if offset is None or repr(zone) != repr(datetime.timezone(offset)):
                raise TypeError(f"JSON does not give back a time with the zone {zone!r}")
        return [tag, value.replace(fold=0).isoformat(), value.fold]

    return tag_clock


_TAGGERS: dict[type, _Tagger] = {
    bytearray: _tag_bytes("a"),
    bytes: _tag_bytes("b"),
    datetime.date: lambda value: ["date", value.isoformat()],
    datetime.datetime: _tag_clock("datetime"),
    datetime.time: _tag_clock("time"),
    datetime.timedelta: lambda value: ["delta", value.days, value.seconds, value.microseconds],
    decimal.Decimal: lambda value: ["n", str(value)],
    dict: _tag_dict,
    frozenset: _tag_set("f"),
    int: lambda value: ["i", hex(value)],
    list: _tag_items("l"),
    set: _tag_set("s"),
    tuple: _tag_items("t"),
    uuid.UUID: lambda value: ["u", value.hex],
}

_UNTAGGERS: dict[str, Callable[[list[Any]], Any]] = {
    "a": lambda items: bytearray(b64decode(items[0])),
    "b": lambda items: b64decode(items[0]),
    "d": lambda items: dict(zip(map(_untag, items[::2]), map(_untag, items[1::2]))),
    "date": lambda items: datetime.date.fromisoformat(items[0]),
    "datetime": lambda items: datetime.datetime.fromisoformat(items[0]).replace(fold=items[1]),
    "delta": lambda items: datetime.timedelta(*items),
    "f": lambda items: frozenset(map(_untag, items)),
    "i": lambda items: int(items[0], 16),
    "l": lambda items: list(map(_untag, items)),
    "n": lambda items: decimal.Decimal(items[0]),
    "s": lambda items: set(map(_untag, items)),
    "t": lambda items: tuple(map(_untag, items)),
    "time": lambda items: datetime.time.fromisoformat(items[0]).replace(fold=items[1]),
    "u": lambda items: uuid.UUID(hex=items[0]),
}
