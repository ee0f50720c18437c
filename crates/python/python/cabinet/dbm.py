"""The interface of the standard library's `dbm` over a database of this package.

>>> import cabinet.dbm
>>> with cabinet.dbm.open("example", "n") as database:
...     database["key"] = "value"
...     database["key"]
b'value'

`shelve.Shelf(cabinet.dbm.open(...))` stores objects in it. A database is a folder. It is a hash,
unless the suffix of its name says otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping
from typing import Any, Union

from . import _database
from ._errors import Error, MissingKeyError

__all__ = ["error", "open", "whichdb"]

_Text = Union[str, bytes]
_Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

#: File that each database has in its folder.
_MANIFEST = "manifest"

#: Suffixes that name a kind.
_SUFFIXES = (".tch", ".hdb", ".tcb", ".bdb")

#: Those that name a kind without any keys and values.
_OTHER_SUFFIXES = (".tcf", ".fdb", ".tct", ".tdb")


class error(OSError):  # noqa: N801, this is its name in all modules of this kind
    """An operation failed. The cause is an exception of `cabinet`."""


class _Translated:
    """Raises `error` in place of the exceptions of `cabinet`, other than that of a missing key."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, raised: Any, trace: Any) -> None:
        if isinstance(raised, Error) and not isinstance(raised, MissingKeyError):
            raise error(getattr(raised, "errno", None), str(raised)) from raised


_translated = _Translated()


class _Database(MutableMapping[_Text, bytes]):
    """An open database. Keys and values are bytes, or str, which is stored as UTF-8."""

    def __init__(self, database: _database.Database) -> None:
        self._database = database

    def __getitem__(self, key: _Text) -> bytes:
        with _translated:
            return self._database[key]  # type: ignore[no-any-return]

    def __setitem__(self, key: _Text, value: _Text) -> None:
        with _translated:
            self._database[key] = value.encode() if isinstance(value, str) else value

    def __delitem__(self, key: _Text) -> None:
        with _translated:
            del self._database[key]

    def __contains__(self, key: object) -> bool:
        with _translated:
            return key in self._database

    def __len__(self) -> int:
        with _translated:
            return len(self._database)

    def __iter__(self) -> Iterator[bytes]:
        with _translated:
            yield from self._database

    def keys(self) -> list[bytes]:  # type: ignore[override]
        """Returns a list of all keys."""
        return list(iter(self))

    def setdefault(self, key: _Text, default: Any = b"") -> bytes:
        """Returns the value of a key, and stores `default` first if there is none."""
        with _translated:
            default = default.encode() if isinstance(default, str) else default
            return self._database.setdefault(key, default)  # type: ignore[no-any-return]

    def clear(self) -> None:
        """Removes all records."""
        with _translated:
            self._database.clear()

    def sync(self) -> None:
        """Makes everything that was written so far durable."""
        with _translated:
            self._database.sync()

    def reorganize(self) -> None:
        """Reclaims the space of removed records."""
        with _translated:
            self._database.optimize()

    def close(self) -> None:
        """Closes the database. May be called again."""
        with _translated:
            self._database.close()

    def __enter__(self) -> _Database:
        return self

    def __exit__(self, *raised: Any) -> None:
        self.close()


def open(file: _Path, flag: str = "r", mode: int = 0o666) -> _Database:  # noqa: A001
    """Opens a database: for reading ("r"), for writing ("w"), for writing and created if it does
    not exist ("c"), or always new ("n").

    `mode` is that of the folder, if it is created: those who may read may also enter it, and its
    owner may do both and write. The process's umask is taken off. Its files have the mode of any
    new file, and nobody reaches them who may not enter the folder.
    """
    if type(mode) is not int or mode & ~0o777:
        raise ValueError(f"mode={mode!r}: give permissions such as 0o600")
    if flag not in ("r", "w", "c", "n"):
        raise ValueError(f'flag {flag!r}: choose "r", "w", "c" or "n"')
    path = os.fsdecode(file)
    if "#" in path:
        raise error(None, f"the path {path!r} has a #, behind which settings begin: rename it")
    if path.lower().endswith(_OTHER_SUFFIXES):
        raise error(None, f"the path {path!r} is that of a table or an array: rename it")
    creates = flag in ("c", "n")
    if flag == "n" and os.path.isfile(path):
        os.unlink(path)
    if creates and not os.path.lexists(path):
        try:
            os.mkdir(path, 0o700 | mode | (mode & 0o444) >> 2)
        except OSError as raised:
            text = f"the folder {path!r} is not created: {raised.strerror}"
            raise error(raised.errno, text) from raised
    kind = None if path.lower().endswith(_SUFFIXES) else "hash"
    with _translated:
        database = _database.open(
            path, kind=kind, create=creates, read_only=flag == "r", truncate=flag == "n"
        )
        return _Database(database)


def whichdb(file: _Path) -> Union[str, None]:
    """Returns "cabinet.dbm" if there is a database at a path; `None` if there is none."""
    manifest = os.path.join(os.fsdecode(file), _MANIFEST)
    return "cabinet.dbm" if os.path.isfile(manifest) else None
