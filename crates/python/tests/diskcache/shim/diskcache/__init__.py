"""The package `cabinet` under the names of diskcache, for diskcache's own tests."""

import sys

import cabinet.cache as core
from cabinet.cache import (
    DEFAULT_SETTINGS,
    ENOVAL,
    EVICTION_POLICY,
    UNKNOWN,
    Cache,
    Disk,
    EmptyDirWarning,
    FanoutCache,
    JSONDisk,
    Timeout,
    UnknownFileWarning,
)
from cabinet.persistent import Deque, Index
from cabinet.recipes import (
    Averager,
    BoundedSemaphore,
    Lock,
    RLock,
    barrier,
    memoize_stampede,
    throttle,
)

__all__ = [
    "DEFAULT_SETTINGS",
    "ENOVAL",
    "EVICTION_POLICY",
    "UNKNOWN",
    "Averager",
    "BoundedSemaphore",
    "Cache",
    "Deque",
    "Disk",
    "EmptyDirWarning",
    "FanoutCache",
    "Index",
    "JSONDisk",
    "Lock",
    "RLock",
    "Timeout",
    "UnknownFileWarning",
    "barrier",
    "memoize_stampede",
    "throttle",
]

# The tests replace `open` in the module that opens the files.
sys.modules["diskcache.core"] = core
