"""What a newcomer tries first: nc, curl, `tyrant get` and tcrmgr read each other's records.

Arguments: port of a running server, folder of the programs.
"""

import pathlib
import subprocess
import sys
import tempfile

import promises
from pymemcache.client.base import Client

PORT = sys.argv[1]
PROGRAMS = pathlib.Path(sys.argv[2])
SERVER = f"127.0.0.1:{PORT}"


def run(*command, stdin=b""):
    """Standard output of a program that has to succeed."""
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=60)
    assert done.returncode == 0, (command, done)
    return done.stdout


def tyrant(command, *arguments, stdin=b""):
    return run(PROGRAMS / "tyrant", command, "--server", SERVER, *arguments, stdin=stdin)


def tcrmgr(command, *arguments):
    return run(PROGRAMS / "tcrmgr", command, "-port", PORT, "127.0.0.1", *arguments)


def test_nc_sets_and_gets():
    conversation = b"set a 0 0 1\r\nb\r\nget a\r\n"
    answer = run("nc", "-q1", "127.0.0.1", PORT, stdin=conversation)
    assert answer == b"STORED\r\nVALUE a 0 1\r\nb\r\nEND\r\n", answer
    assert tyrant("get", "a") == b"b\n"
    assert run("curl", "-sS", f"http://{SERVER}/a") == b"b"


def test_curl_uploads_a_file_that_everybody_reads():
    content = bytes(range(256)) * 1000
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        run("curl", "-sS", "--fail", "-T", file.name, f"http://{SERVER}/k")
    assert run("curl", "-sS", "--fail", f"http://{SERVER}/k") == content
    assert tyrant("get", "k") == content + b"\n"
    assert tcrmgr("get", "k") == content + b"\n"
    assert Client(("127.0.0.1", int(PORT))).get("k") == content


def test_a_record_of_tyrant_put_is_read_by_all():
    tyrant("put", "by tyrant", "-", stdin=b"value\nof two lines")
    expected = b"value\nof two lines"
    assert tcrmgr("get", "by tyrant") == expected + b"\n"
    assert run("curl", "-sS", "--fail", f"http://{SERVER}/by%20tyrant") == expected


def test_a_record_of_tcrmgr_put_is_read_by_all():
    tcrmgr("put", "by-tcrmgr", "value")
    assert tyrant("get", "by-tcrmgr") == b"value\n"
    assert Client(("127.0.0.1", int(PORT))).get("by-tcrmgr") == b"value"


def test_curl_removes_what_tyrant_stored():
    tyrant("put", "short-lived", "x")
    run("curl", "-sS", "--fail", "-X", "DELETE", f"http://{SERVER}/short-lived")
    gone = subprocess.run(
        [PROGRAMS / "tyrant", "get", "--server", SERVER, "short-lived"], capture_output=True
    )
    assert gone.returncode == 1 and gone.stdout == b"", gone


promises.keep(dict(globals()))
