"""Queues of a cache: ranges of its keys, with values at consecutive numbers."""

from __future__ import annotations

from typing import Optional, Union

from . import _errors
from ._cache_storage import KEY_BYTES_MAX, number_of_key, pack_key

# Keys are between the ends. The first one is in the middle.
_START = 500_000_000_000_000
_END = 999_999_999_999_999
_DIGITS = 15


class Queue:
    """Keys of a queue: the integers between 0 and 999999999999999, or texts that end with them.

    With a prefix, a key is the prefix, `-`, and the 15 digits of its number. Other keys may sort
    among these, such as those of the queue "a-5" among those of "a". They are no items.
    """

    __slots__ = ("_prefix", "_head", "start", "stop")

    def __init__(self, prefix: Optional[str]) -> None:
        self._prefix = prefix
        if prefix is None:
            self._head = 0
            self.start, self.stop = pack_key(0, True)[0], pack_key(_END, True)[0]
            return
        if not isinstance(prefix, str):
            raise TypeError(f"prefix={prefix!r}: that of a queue is str, or None for integers")
        head = pack_key(f"{prefix}-", True)[0]
        self._head = len(head)
        # Of longer keys the tree has a digest, which does not sort by the number.
        key_bytes = len(head) - 2 + _DIGITS
        if key_bytes > KEY_BYTES_MAX:
            raise _errors.KeyTooLongError(
                f"the keys of this queue have {key_bytes} bytes, and {KEY_BYTES_MAX} are the "
                f"maximum: give a prefix of at most {KEY_BYTES_MAX - _DIGITS - 1} bytes"
            )
        self.start, self.stop = head + b"0" * _DIGITS, head + b"9" * _DIGITS

    def number_of(self, tree_key: bytes) -> Optional[int]:
        """Returns the number of an item by the key of its row; None if it is no item."""
        if self._prefix is None:
            # A key that was set as a float counts, if it equals an integer.
            value = number_of_key(tree_key)
            number = int(value) if value.is_integer() else 0
        else:
            digits = tree_key[self._head :]
            number = int(digits) if len(digits) == _DIGITS and digits.isdigit() else 0
        return number if 0 < number < _END else None

    def is_item(self, tree_key: bytes) -> bool:
        """Returns whether the key of a row is that of an item."""
        return self.number_of(tree_key) is not None

    def next_key(self, last_tree_key: Optional[bytes], is_back: bool) -> Union[int, str]:
        """Returns the key beyond the last item at a side."""
        last = None if last_tree_key is None else self.number_of(last_tree_key)
        if last is None:
            number = _START
        else:
            number = last + 1 if is_back else last - 1
            if not 0 < number < _END:
                side = "back" if is_back else "front"
                raise _errors.TooManyError(
                    f"the queue has an item with the number {last}, and no key is left at its "
                    f"{side}: pull or remove that item, or push at the other side"
                )
        return number if self._prefix is None else f"{self._prefix}-{number:0{_DIGITS}d}"
