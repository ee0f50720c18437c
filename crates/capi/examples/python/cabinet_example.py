"""A database of cabinet from Python's ctypes: puts, values, a callback, errors.

    python3 cabinet_example.py FOLDER
"""

import ctypes
import os
import sys
from ctypes import POINTER, byref, c_char_p, c_int32, c_size_t, c_uint32, c_uint64, c_void_p

library = ctypes.CDLL("libcabinet.so.1")

NOT_FOUND, IN_USE = 1, -15


class Record(ctypes.Structure):
    _fields_ = [
        ("key", c_void_p),
        ("key_length", c_size_t),
        ("value", c_void_p),
        ("value_length", c_size_t),
        ("version", c_uint64),
        ("expires_at_ms", c_uint64),
        ("flags", c_uint32),
    ]


Visit = ctypes.CFUNCTYPE(c_int32, c_void_p, POINTER(Record))

library.cabinet_open.argtypes = [c_char_p, POINTER(c_void_p), POINTER(c_void_p)]
library.cabinet_put.argtypes = [
    c_void_p, c_char_p, c_size_t, c_char_p, c_size_t, POINTER(c_void_p)]
library.cabinet_get.argtypes = [
    c_void_p, c_char_p, c_size_t, POINTER(c_void_p), POINTER(c_size_t), POINTER(c_void_p)]
library.cabinet_for_each.argtypes = [c_void_p, Visit, c_void_p, POINTER(c_void_p)]
library.cabinet_free.argtypes = [c_void_p]
library.cabinet_free.restype = None
library.cabinet_database_free.argtypes = [c_void_p]
library.cabinet_database_free.restype = None
library.cabinet_error_free.argtypes = [c_void_p]
library.cabinet_error_free.restype = None
for text in (library.cabinet_error_text, library.cabinet_error_advice):
    text.argtypes = [c_void_p]
    text.restype = c_char_p


class Error(Exception):
    def __init__(self, code, text, advice):
        super().__init__(f"{text}; {advice}")
        self.code = code


def call(function, *arguments):
    """Calls a function whose last parameter is the error. Returns its status."""
    error = c_void_p()
    status = function(*arguments, byref(error))
    if status < 0:
        text, advice = library.cabinet_error_text(error), library.cabinet_error_advice(error)
        library.cabinet_error_free(error)
        raise Error(status, text.decode(), advice.decode())
    return status


class Database:
    def __init__(self, name):
        self.handle = c_void_p()
        call(library.cabinet_open, name.encode(), byref(self.handle))

    def close(self):
        library.cabinet_database_free(self.handle)
        self.handle = c_void_p()

    def __setitem__(self, key, value):
        call(library.cabinet_put, self.handle, key, len(key), value, len(value))

    def __getitem__(self, key):
        value, length = c_void_p(), c_size_t()
        status = call(
            library.cabinet_get, self.handle, key, len(key), byref(value), byref(length))
        if status == NOT_FOUND:
            raise KeyError(key)
        try:
            return ctypes.string_at(value, length.value)
        finally:
            library.cabinet_free(value)

    def items(self):
        found = []

        def visit(_, record):
            record = record.contents
            found.append((
                ctypes.string_at(record.key, record.key_length),
                ctypes.string_at(record.value, record.value_length)))
            return 0

        call(library.cabinet_for_each, self.handle, Visit(visit), None)
        return found


name = os.path.join(sys.argv[1], "python.tcb")
database = Database(name)
database[b"apple"] = b"120"
database[b"nul\0inside"] = b"\0"
assert database[b"apple"] == b"120"
assert database.items() == [(b"apple", b"120"), (b"nul\0inside", b"\0")]
try:
    database[b"cherry"]
    raise AssertionError("there is no cherry")
except KeyError:
    pass
try:
    Database(name)
    raise AssertionError("it is open already")
except Error as error:
    assert error.code == IN_USE, error
database.close()
try:
    database[b"apple"]
    raise AssertionError("it is closed")
except Error as error:
    assert "NULL" in str(error), error
print("Python:", name)
