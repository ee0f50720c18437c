"""`Deque` and `Index`: a sequence and an ordered mapping that are kept in a cache's folder.

Their caches evict nothing. Every method is one atomic step.
"""

from __future__ import annotations

import operator
import os
from collections import OrderedDict
from collections.abc import (
    Container,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    MutableMapping,
    Sequence,
    ValuesView,
)
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Callable, Optional

from .cache import ENOVAL, Cache

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Deque", "Index"]


def _comparison(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def compare(self: Any, that: Any) -> Any:
        if not isinstance(that, Sequence):
            return NotImplemented
        if operation is operator.eq and len(self) != len(that):
            return False
        if operation is operator.ne and len(self) != len(that):
            return True
        return operation(list(self), list(that))

    return compare


class Deque(Sequence):  # type: ignore[type-arg]
    """A deque like that of `collections`, in a folder.

    With `maxlen`, items of the other side are removed when the deque would be longer. `options`
    are those of `Cache`, such as `pickle` or `durability`.
    """

    def __init__(
        self,
        iterable: Iterable[Any] = (),
        directory: Any = None,
        maxlen: Optional[float] = None,
        **options: Any,
    ) -> None:
        cache = Cache(directory, eviction_policy="none", **options)
        self._begin(cache, iterable, maxlen)

    @classmethod
    def fromcache(
        cls, cache: Cache, iterable: Iterable[Any] = (), maxlen: Optional[float] = None
    ) -> Self:
        """Returns a deque in a cache that is open. Its eviction policy should be "none"."""
        deque = cls.__new__(cls)
        deque._begin(cache, iterable, maxlen)
        return deque

    def _begin(self, cache: Cache, iterable: Iterable[Any], maxlen: Optional[float]) -> None:
        self._cache = cache
        self._maxlen = float("inf") if maxlen is None else maxlen
        self.extend(iterable)

    @property
    def cache(self) -> Cache:
        """The `Cache` with the items."""
        return self._cache

    @property
    def directory(self) -> str:
        """Folder of the deque."""
        return self._cache.directory

    @property
    def maxlen(self) -> float:
        """Maximum number of items."""
        return self._maxlen

    @maxlen.setter
    def maxlen(self, value: float) -> None:
        self._maxlen = value
        with self._cache.transact(retry=True):
            while len(self._cache) > self._maxlen:
                self.popleft()

    def _at(self, index: Any, function: Callable[[Any], Any]) -> Any:
        """Returns what a function returns for the key of an item."""
        length = len(self._cache)
        is_reverse = index < 0
        skipped = -index - 1 if is_reverse else index
        if skipped < length:
            for key in self._cache.iterkeys(reverse=is_reverse):
                if skipped:
                    skipped -= 1
                    continue
                try:
                    return function(key)
                except KeyError:
                    # Another thread has removed it: take the next one.
                    continue
        raise IndexError("deque index out of range")

    def __getitem__(self, index: Any) -> Any:
        return self._at(index, self._cache.__getitem__)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._at(index, lambda key: self._cache.__setitem__(key, value))

    def __delitem__(self, index: Any) -> None:
        self._at(index, self._cache.__delitem__)

    def __len__(self) -> int:
        return len(self._cache)

    def __iter__(self) -> Iterator[Any]:
        return self._values(False)

    def __reversed__(self) -> Iterator[Any]:
        return self._values(True)

    def _values(self, is_reverse: bool) -> Iterator[Any]:
        for key in self._cache.iterkeys(reverse=is_reverse):
            try:
                yield self._cache[key]
            except KeyError:
                pass

    __eq__ = _comparison(operator.eq)
    __ne__ = _comparison(operator.ne)
    __lt__ = _comparison(operator.lt)
    __le__ = _comparison(operator.le)
    __gt__ = _comparison(operator.gt)
    __ge__ = _comparison(operator.ge)
    __hash__ = None  # type: ignore[assignment]

    def __iadd__(self, iterable: Iterable[Any]) -> Self:
        self.extend(iterable)
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}(directory={self.directory!r})"

    def __getstate__(self) -> Any:
        return self._cache, self._maxlen

    def __setstate__(self, state: Any) -> None:
        self._cache, self._maxlen = state

    def append(self, value: Any) -> None:
        """Adds an item at the back."""
        with self._cache.transact(retry=True):
            self._cache.push(value, retry=True)
            if len(self._cache) > self._maxlen:
                self.popleft()

    def appendleft(self, value: Any) -> None:
        """Adds an item at the front."""
        with self._cache.transact(retry=True):
            self._cache.push(value, side="front", retry=True)
            if len(self._cache) > self._maxlen:
                self.pop()

    def extend(self, iterable: Iterable[Any]) -> None:
        """Adds items at the back, one after the other."""
        for value in iterable:
            self.append(value)

    def extendleft(self, iterable: Iterable[Any]) -> None:
        """Adds items at the front, one after the other."""
        for value in iterable:
            self.appendleft(value)

    def copy(self) -> Deque:
        """Returns another object for the same deque."""
        return type(self).fromcache(self._cache, maxlen=self._maxlen)

    def count(self, value: Any) -> int:
        """Returns the number of items that equal a value."""
        return sum(1 for item in self if item == value)

    def clear(self) -> None:
        """Removes all items."""
        self._cache.clear(retry=True)

    def _take(self, take: Callable[..., Any], side: str, verb: str) -> Any:
        _, value = take(default=(None, ENOVAL), side=side, retry=True)
        if value is ENOVAL:
            raise IndexError(f"{verb} from an empty deque")
        return value

    def pop(self) -> Any:
        """Removes the last item, and returns it."""
        return self._take(self._cache.pull, "back", "pop")

    def popleft(self) -> Any:
        """Removes the first item, and returns it."""
        return self._take(self._cache.pull, "front", "pop")

    def peek(self) -> Any:
        """Returns the last item."""
        return self._take(self._cache.peek, "back", "peek")

    def peekleft(self) -> Any:
        """Returns the first item."""
        return self._take(self._cache.peek, "front", "peek")

    def remove(self, value: Any) -> None:
        """Removes the first item that equals a value. Fails with ValueError without one."""
        for key in self._cache.iterkeys():
            try:
                if self._cache[key] == value:
                    del self._cache[key]
                    return
            except KeyError:
                # Another thread has removed it.
                continue
        raise ValueError("deque.remove(value): value not in deque")

    def reverse(self) -> None:
        """Reverses the order of the items."""
        with self._cache.transact(retry=True):
            values = list(self)
            self._cache.clear(retry=True)
            for value in reversed(values):
                self._cache.push(value, retry=True)

    def rotate(self, steps: int = 1) -> None:
        """Moves items from the back to the front, or from the front to the back if negative."""
        if not isinstance(steps, int):
            raise TypeError(f"steps={steps!r}: give an integer")
        with self._cache.transact(retry=True):
            length = len(self._cache)
            if not length:
                return
            try:
                for _ in range(abs(steps) % length):
                    if steps > 0:
                        self._cache.push(self.pop(), side="front", retry=True)
                    else:
                        self._cache.push(self.popleft(), retry=True)
            except IndexError:
                # All items that are left are those of files that are gone.
                return

    @contextmanager
    def transact(self) -> Iterator[None]:
        """Returns a context of a transaction, see `Cache.transact`."""
        with self._cache.transact(retry=True):
            yield


class Index(MutableMapping):  # type: ignore[type-arg]
    """A mapping in the order of insertion, in a folder.

    `Index(directory, mapping, key=value)`: the first argument may be the name of the folder, or
    None for a new one for temporary files. Options of the cache such as `pickle=True` are given
    by `Index.fromcache(Cache(directory, eviction_policy="none", pickle=True))`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and (args[0] is None or isinstance(args[0], (str, bytes, os.PathLike))):
            directory, args = args[0], args[1:]
        else:
            directory = None
        self._cache = Cache(directory, eviction_policy="none")
        self.update(*args, **kwargs)

    @classmethod
    def fromcache(cls, cache: Cache, *args: Any, **kwargs: Any) -> Self:
        """Returns an index in a cache that is open. Its eviction policy should be "none"."""
        index = cls.__new__(cls)
        index._cache = cache
        index.update(*args, **kwargs)
        return index

    @property
    def cache(self) -> Cache:
        """The `Cache` with the items."""
        return self._cache

    @property
    def directory(self) -> str:
        """Folder of the index."""
        return self._cache.directory

    def __getitem__(self, key: Any) -> Any:
        return self._cache[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._cache[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._cache[key]

    def __contains__(self, key: Any) -> bool:
        return key in self._cache

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cache)

    def __reversed__(self) -> Iterator[Any]:
        return reversed(self._cache)

    def __len__(self) -> int:
        return len(self._cache)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Returns the value of a key. Stores `default` first if there is none."""
        while True:
            try:
                return self[key]
            except KeyError:
                self._cache.add(key, default, retry=True)

    def peekitem(self, last: bool = True) -> Any:
        """Returns the last or first pair. Fails with KeyError without one."""
        return self._cache.peekitem(last, retry=True)

    def pop(self, key: Any, default: Any = ENOVAL) -> Any:
        """Removes a key and returns its value, or `default`; fails with KeyError without one."""
        value = self._cache.pop(key, default=ENOVAL, retry=True)
        if value is not ENOVAL:
            return value
        if default is ENOVAL:
            raise KeyError(key)
        return default

    def popitem(self, last: bool = True) -> Any:
        """Removes the last or first pair, and returns it. Fails with KeyError without one."""
        with self._cache.transact(retry=True):
            key, value = self._cache.peekitem(last, retry=True)
            del self._cache[key]
        return key, value

    def push(self, value: Any, prefix: Optional[str] = None, side: str = "back") -> Any:
        """Stores a value at a side of a queue, see `Cache.push`."""
        return self._cache.push(value, prefix, side, retry=True)

    def pull(
        self, prefix: Optional[str] = None, default: Any = (None, None), side: str = "front"
    ) -> Any:
        """Removes the pair at a side of a queue, and returns it, see `Cache.pull`."""
        return self._cache.pull(prefix, default, side, retry=True)

    def clear(self) -> None:
        """Removes all pairs."""
        self._cache.clear(retry=True)

    def keys(self) -> KeysView[Any]:
        return KeysView(self)

    def values(self) -> ValuesView[Any]:
        return ValuesView(self)

    def items(self) -> ItemsView[Any, Any]:
        return ItemsView(self)

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        if len(self) != len(other):
            return False
        if isinstance(other, (Index, OrderedDict)):
            return all(one == two for one, two in zip(self.items(), other.items()))
        return all(key in other and value == other[key] for key, value in self.items())

    def __ne__(self, other: Any) -> bool:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.directory!r})"

    def __getstate__(self) -> Any:
        return self._cache

    def __setstate__(self, state: Any) -> None:
        self._cache = state

    def memoize(
        self, name: Optional[str] = None, typed: bool = False, ignore: Container[Any] = ()
    ) -> Any:
        """Returns a decorator that stores the results of a function, see `Cache.memoize`."""
        return self._cache.memoize(name, typed, ignore=ignore)

    @contextmanager
    def transact(self) -> Iterator[None]:
        """Returns a context of a transaction, see `Cache.transact`."""
        with self._cache.transact(retry=True):
            yield
