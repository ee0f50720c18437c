"""Servers of shared databases: how one is started, and the process that it is.

The first process that opens a database with `shared=True` starts its server, and any process does
so again if it was killed. A lock in the folder makes the others wait meanwhile. The server is a
process of its own, without a terminal and open files of the one that has started it.
"""

from __future__ import annotations

import fcntl
import functools
import marshal
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable, NoReturn, Optional

from . import _cabinet, _errors

#: Seconds without a connection after which a server ends.
IDLE_SECONDS = 30.0

#: Files in the folder of a database, see `server.rs`.
SOCKET, LOCK = "server.socket", "server.lock"

#: File systems of several machines, which locks and sockets do not connect.
_NETWORK_SYSTEMS = ("9p", "afs", "ceph", "cifs", "fuse.sshfs", "lustre", "nfs", "nfs4", "smb3")

#: Bytes after what a library may have written before the outcome of a start.
_MARK = b"\0cabinet\0"

#: Program of a server. Its argument is the folder of this package.
_PROGRAM = "import sys; sys.path.append(sys.argv[1]); import cabinet._server as s; s.main()"


def prepare(
    name: Any,
    path: Any,
    options: Optional[dict[str, Any]],
    idle_seconds: Optional[float],
    create: bool,
) -> Callable[[], None]:
    """Checks the folder of a database, and returns a function that starts its server.

    Makes the folder, unless `create` is false. The function does nothing if a server runs.
    """
    folder = os.fspath(path)
    given = {name: value for name, value in (options or {}).items() if value is not None}
    idle = IDLE_SECONDS if idle_seconds is None else float(idle_seconds)
    if not idle >= 0:
        raise ValueError(f"idle_seconds={idle_seconds}: give seconds, 0 or more")
    if create:
        try:
            os.mkdir(folder)
        except FileExistsError:
            pass
        except OSError as error:
            raise _errors.IoError(error.errno, f"create {folder}: {error.strerror}", folder)
    _check_folder(folder)
    tuning = os.fsdecode(name).partition("#")[2]
    # These take precedence over the mode in the name. The server may write for others.
    given.update(create=create, read_only=False, truncate=False)
    whole_name = f"{folder}#{tuning}" if tuning else folder
    try:
        request = marshal.dumps((whole_name, idle, given))
    except ValueError:
        raise TypeError(f"options={given}: give values of Python's own classes") from None
    return functools.partial(_start, folder, request)


def _check_folder(folder: str) -> None:
    try:
        status = os.stat(folder)
    except OSError as error:
        raise _errors.IoError(error.errno, f"open {folder}: {error.strerror}", folder) from None
    if status.st_uid != os.geteuid():
        raise _errors.ServerError(
            f"{folder} belongs to the user {status.st_uid}, and this process to {os.geteuid()}: "
            "the processes that share a database are those of the user whose folder it is, and one "
            "of another user opens it with shared=False"
        )
    system = _file_system(status.st_dev)
    if system in _NETWORK_SYSTEMS:
        raise _errors.ServerError(
            f"{folder} is on {system}, whose locks and sockets do not connect machines: move it to "
            "a disk of this machine, open it in one process with shared=False, or serve it with "
            "tyrant"
        )


def _file_system(device: int) -> Optional[str]:
    """Returns the type of the file system of a device, if the system shows it."""
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
            for line in mounts:
                fields = line.split()
                if fields[2] == number:
                    return fields[fields.index("-") + 1]
    except (OSError, ValueError, IndexError):
        pass
    return None


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    path = os.path.join(folder, LOCK)
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _errors.IoError(error.errno, f"open {path}: {error.strerror}", path) from None
    _locks.add(lock)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        if lock in _locks:
            _locks.remove(lock)
            # A process that was started meanwhile may have a copy of the descriptor.
            fcntl.flock(lock, fcntl.LOCK_UN)
            os.close(lock)


#: Descriptors of locks that this process has or waits for.
_locks: set[int] = set()


def _after_fork_in_child() -> None:
    # They are the parent's, and stay locked as long as a copy is open.
    for lock in _locks:
        os.close(lock)
    _locks.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)


def _is_running(folder: str) -> bool:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            # The path of the folder may be too long.
            probe.connect(f"/proc/self/fd/{descriptor}/{SOCKET}")
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    except OSError:
        pass
    finally:
        os.close(descriptor)
    return True


def _start(folder: str, request: bytes) -> None:
    """Starts the server of the database in a folder, unless it runs."""
    with _locked(folder):
        if _is_running(folder):
            return
        server = subprocess.Popen(
            [_interpreter(), "-I", "-W", "ignore", "-c", _PROGRAM, _package_folder()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
            # Ctrl-C in the terminal is for the program, and not for this one.
            start_new_session=True,
        )
        output = server.communicate(request)[0]
    noise, _, outcome = output.partition(_MARK)
    if not outcome:
        text = noise.decode("utf-8", "replace").strip()
        raise _errors.ServerError(f"the server of {folder} ended when it was started: {text}")
    name, arguments = marshal.loads(outcome)
    if name:
        error = getattr(_errors, name, None) or _errors.ServerError
        raise error(*arguments)


def _interpreter() -> str:
    # Programs with another executable than Python's set this one for `multiprocessing`, too.
    from multiprocessing.spawn import get_executable

    executable = get_executable()
    if not executable:
        raise _errors.ServerError(
            "the program does not know the path of Python, which runs the server: give it to "
            "multiprocessing.set_executable"
        )
    return os.fsdecode(executable)


def _package_folder() -> str:
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def main() -> NoReturn:
    """Runs a server, whose request is in the standard input."""
    name, idle_seconds, options = marshal.loads(sys.stdin.buffer.read())
    # The one that has started it does not have to wait for its end.
    if os.fork():
        os._exit(0)
    os.setsid()
    try:
        server = _cabinet.Server(name, idle_seconds, options)
    except BaseException as error:
        texts = tuple(os.fsdecode(a) if isinstance(a, bytes) else a for a in error.args)
        if isinstance(error, _errors.Error):
            _report(type(error).__name__, texts)
        else:
            _report("ServerError", (repr(error),))
        os._exit(1)
    _report("", ())
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    os.close(nothing)
    server.run()
    os._exit(0)


def _report(name: str, arguments: tuple[Any, ...]) -> None:
    """Writes the outcome of a start: the name and the arguments of the error, if there is one."""
    plain = tuple(a if isinstance(a, int) else os.fspath(a) for a in arguments)
    os.write(1, _MARK + marshal.dumps((name, plain)))
