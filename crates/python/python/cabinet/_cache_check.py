"""Check of a cache: rows, their indices and files, and the counts."""

from __future__ import annotations

import os
import os.path
from threading import get_ident
from typing import Callable

from ._cache_storage import (
    ENTRY_EXPIRY,
    ENTRY_FILE,
    ENTRY_ORDER,
    ENTRY_RANK,
    ENTRY_RERANK,
    ENTRY_ROW,
    ENTRY_TAG,
    FILE_NAME,
    Row,
    Storage,
    after,
)


def check(storage: Storage, fix: bool, warn: Callable[..., None]) -> None:
    """Calls `warn` with each finding, and repairs it if `fix` is set. Within a transaction."""
    if fix:
        storage.check_writable()
    storage.write_notes()
    for damage in storage.store.verify()["damages"]:
        warn(f"the database is damaged: {damage}")
    count, volume = _check_rows(storage, fix, warn)
    _check_indices(storage, fix, warn)
    _check_files(storage, fix, warn)
    for name, found in (("count", count), ("volume", volume)):
        if getattr(storage, name) != found:
            warn(
                f"the {name} of the cache is {getattr(storage, name)}, and that of its rows {found}"
            )
            if fix:
                storage.set_counts(**{name: found})


def _check_rows(storage: Storage, fix: bool, warn: Callable[..., None]) -> tuple[int, int]:
    count = volume = 0
    for tree_key, data in storage.scan(ENTRY_ROW, after(ENTRY_ROW)):
        try:
            row = Row(data)
        except Exception as error:
            warn(f"the row {tree_key!r} is damaged: {error}")
            if fix:
                storage.remove(tree_key)
            continue
        fault = None
        if row.filename is not None:
            path = os.path.join(storage.directory, row.filename)
            size = os.path.getsize(path) if os.path.exists(path) else None
            if size is None:
                fault = f"the file {path} is missing"
            elif size != row.file_bytes:
                fault = f"the file {path} has {size} bytes, and its row {row.file_bytes}"
        if fault is not None:
            warn(fault)
            if fix:
                # Its counts are those of before the check.
                counts = storage.count, storage.volume
                storage.remove_row(tree_key, row)
                storage.count, storage.volume = counts
                continue
        for key, value in storage.entries_of(tree_key, row).items():
            if storage.get(key) != value:
                warn(f"the row {tree_key!r} has not the entry {key!r}")
                if fix:
                    storage.put(key, value)
        count += 1
        volume += row.volume(tree_key)
    return count, volume


def _check_indices(storage: Storage, fix: bool, warn: Callable[..., None]) -> None:
    for prefix in (ENTRY_ORDER, ENTRY_EXPIRY, ENTRY_TAG, ENTRY_RANK, ENTRY_FILE):
        for key, value in storage.scan(prefix, after(prefix)):
            tree_key = value[1:] if prefix == ENTRY_ORDER else value
            row = storage.row(tree_key)
            if row is None or storage.entries_of(tree_key, row).get(key) != value:
                warn(f"the entry {key!r} is of no row")
                if fix:
                    storage.remove(key)
    for key, _ in storage.scan(ENTRY_RERANK, after(ENTRY_RERANK)):
        if storage.get(ENTRY_ORDER + key[1:]) is None:
            warn(f"the entry {key!r} is of no row")
            if fix:
                storage.remove(key)


def _check_files(storage: Storage, fix: bool, warn: Callable[..., None]) -> None:
    from .cache import EmptyDirWarning, UnknownFileWarning

    is_alone = storage.is_alone()
    for filename in storage.files():
        is_writing = not is_alone or storage.writing - {get_ident()}
        if FILE_NAME.fullmatch(filename) and is_writing:
            # It may be that of a value that another thread or process is storing.
            continue
        if storage.get(ENTRY_FILE + filename.encode("utf-8")) is None:
            warn(
                f"no row has the file {os.path.join(storage.directory, filename)}",
                UnknownFileWarning,
            )
            if fix:
                storage.remove_file(filename)
    for folder in storage.empty_folders():
        path = os.path.join(storage.directory, folder)
        warn(f"the folder {path} is empty", EmptyDirWarning)
        if fix:
            try:
                os.rmdir(path)
            except OSError:
                # Another thread has begun to write a file in it.
                pass
