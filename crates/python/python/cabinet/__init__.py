"""Embedded, persistent key-value databases.

>>> import cabinet
>>> with cabinet.open("*", codec="str", keys="str") as fruits:
...     fruits["apple"] = "red"
...     dict(fruits)
{'apple': 'red'}
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._cabinet import Cursor, Meta, check, import_tokyo_cabinet, salvage
from ._codecs import Codec
from ._database import Batch, Database, Transaction, open
from ._errors import (
    BadColumnError,
    BadNameError,
    BadPatternError,
    BadSearchError,
    BatchTooLongError,
    BusyError,
    ClosedError,
    ConflictError,
    CorruptedError,
    Error,
    ForkedError,
    IndexExistsError,
    InternalError,
    InUseError,
    InvalidArgumentError,
    IoError,
    KeyTooLongError,
    LateError,
    LegacyFileError,
    MissingKeyError,
    NoIdError,
    NoIndexError,
    NoMemoryError,
    NoSpaceError,
    NotANumberError,
    OutcomeUnknownError,
    PoisonedError,
    ReadOnlyError,
    ReentrantError,
    ServerError,
    TooManyError,
    UnavailableError,
    UnsupportedError,
    ValueTooLongError,
    WrongKindError,
)
from ._table import KEY, Column, Condition, Plan, Query, Table, column

__all__ = [
    "BadColumnError",
    "BadNameError",
    "BadPatternError",
    "BadSearchError",
    "Batch",
    "BatchTooLongError",
    "BusyError",
    "ClosedError",
    "Codec",
    "Column",
    "Condition",
    "ConflictError",
    "CorruptedError",
    "Cursor",
    "Database",
    "Error",
    "ForkedError",
    "InUseError",
    "IndexExistsError",
    "InternalError",
    "InvalidArgumentError",
    "IoError",
    "KEY",
    "KeyTooLongError",
    "LateError",
    "LegacyFileError",
    "Meta",
    "MissingKeyError",
    "NoIdError",
    "NoIndexError",
    "NoMemoryError",
    "NoSpaceError",
    "NotANumberError",
    "OutcomeUnknownError",
    "Plan",
    "PoisonedError",
    "Query",
    "ReadOnlyError",
    "ReentrantError",
    "ServerError",
    "Table",
    "TooManyError",
    "Transaction",
    "UnavailableError",
    "UnsupportedError",
    "ValueTooLongError",
    "WrongKindError",
    "check",
    "column",
    "import_tokyo_cabinet",
    "open",
    "salvage",
]

# Caches are imported when they are used: they take three times as long as all the rest.
_CACHES = {
    "Cache": "cache",
    "Deque": "persistent",
    "FanoutCache": "cache",
    "Index": "persistent",
}
__all__ += [*_CACHES]

if TYPE_CHECKING:
    from .cache import Cache as Cache
    from .cache import FanoutCache as FanoutCache
    from .persistent import Deque as Deque
    from .persistent import Index as Index


def __getattr__(name: str) -> Any:
    if name in _CACHES:
        return getattr(import_module(f".{_CACHES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
