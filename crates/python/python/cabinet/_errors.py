"""Exceptions: one class for each cause, all of them below `Error`.

The text of each says what failed, and then what to do about it.
"""


class Error(Exception):
    """Base of all exceptions of this package."""


class MissingKeyError(Error, KeyError):
    """There is no record with this key."""


class _SystemError(Error, OSError):
    """Base of those with a number of the operating system, `errno`, and a `filename`."""

    def __str__(self) -> str:
        return str(self.strerror)


class IoError(_SystemError):
    """The operating system refused a file operation."""


class NoSpaceError(_SystemError):
    """The disk, or the given capacity, is full. Reads still work."""


class CorruptedError(Error):
    """A file is damaged."""


class NoMemoryError(Error, MemoryError):
    """An on-memory database uses all the memory that it may."""


class PoisonedError(Error):
    """An earlier write or sync failed, so all later ones are refused. Reads still work."""


class ReadOnlyError(Error):
    """Changes are refused: the database was opened for reading only."""


class UnavailableError(Error):
    """Changes are not allowed at present; the same change can succeed later."""


class KeyTooLongError(Error, ValueError):
    """The key is longer than a key may be."""


class ValueTooLongError(Error, ValueError):
    """The value is, or would become, longer than a value may be."""


class BatchTooLongError(Error, ValueError):
    """A batch or transaction holds more than it may."""


class NoIdError(Error, ValueError):
    """The key is not an id that a fixed-length database can have."""


class NotANumberError(Error, ValueError):
    """The record to add to does not hold a number of the right width."""


class ConflictError(Error):
    """Another writer has changed a record that was read. Nothing was written."""


class LateError(Error, TimeoutError):
    """A deadline has passed."""


class ReentrantError(Error):
    """A function that the database called has called the database."""


class InUseError(Error):
    """Another process, or another object of this one, has the database open."""


class LegacyFileError(Error):
    """The file is one of Tokyo Cabinet's own."""


class BadColumnError(Error, ValueError):
    """The name of a column of a table is empty or too long, or has no value."""


class BadSearchError(Error, ValueError):
    """A search has an invalid part."""


class IndexExistsError(Error):
    """There is an index on the column already."""


class NoIndexError(Error):
    """There is no index on the column."""


class UnsupportedError(Error):
    """This kind or state of a database does not have the operation."""


class InvalidArgumentError(Error, ValueError):
    """An argument is invalid for this database."""


class WrongKindError(Error):
    """The files hold a database of another kind."""


class TooManyError(Error):
    """The database has the maximum number of something."""


class InternalError(Error):
    """A defect of the library. Nothing was changed."""


class BadPatternError(Error, ValueError):
    """A regular expression does not parse."""


class BadNameError(Error, ValueError):
    """The name of a database, or a setting in it, is wrong."""


class ClosedError(Error, ValueError):
    """The database, transaction or cursor is closed."""


class ForkedError(Error, RuntimeError):
    """The database was opened before this process was forked from its parent."""


class BusyError(Error, RuntimeError):
    """Another thread uses the same iterator, cursor or batch."""


class ServerError(Error):
    """The server of a shared database cannot be started or talked to."""


class OutcomeUnknownError(Error):
    """The server of a shared database has ended before it replied: the change may be there."""
