"""Codecs: how values are turned into bytes and back."""

from __future__ import annotations

import json
from typing import Any, Callable, Union


class Codec:
    """A codec of two functions. With `is_text`, `loads` gets a `str` in place of `bytes`."""

    __slots__ = ("dumps", "loads", "is_text")

    def __init__(
        self,
        dumps: Callable[[Any], Union[bytes, str]],
        loads: Callable[[Any], Any],
        is_text: bool = False,
    ) -> None:
        self.dumps = dumps
        self.loads = loads
        self.is_text = is_text


def _json() -> Codec:
    encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
    return Codec(encoder.encode, json.JSONDecoder().decode, is_text=True)


def _msgpack() -> Codec:
    try:
        import msgpack  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError as error:
        raise ImportError(
            'the codec "msgpack" needs the module msgpack: pip install msgpack, or choose '
            'codec="json"'
        ) from error
    return Codec(msgpack.packb, msgpack.unpackb)


def _pickle() -> Codec:
    import pickle

    def dumps(value: Any) -> bytes:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)

    return Codec(dumps, pickle.loads)


_KNOWN = {"json": _json, "msgpack": _msgpack, "pickle": _pickle}


def resolve(codec: Any) -> Any:
    """Returns the codec of an argument: "raw", "str", or an object with `dumps` and `loads`."""
    if isinstance(codec, str):
        if codec in ("raw", "str"):
            return codec
        if codec in _KNOWN:
            return _KNOWN[codec]()
        raise ValueError(
            f'there is no codec {codec!r}: choose "raw", "str", "json", "msgpack", "pickle", or '
            "give an object with dumps and loads"
        )
    if callable(getattr(codec, "dumps", None)) and callable(getattr(codec, "loads", None)):
        return Codec(codec.dumps, codec.loads, bool(getattr(codec, "is_text", False)))
    raise TypeError(f"a codec is a name, or an object with dumps and loads, not {codec!r}")
