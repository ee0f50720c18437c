"""libmemcached's own tools, its test of both protocols among them.

Arguments: port of a running server, folder of the programs.
"""

import os
import re
import subprocess
import sys
import tempfile

import promises

PORT = sys.argv[1]
SERVER = f"--servers=127.0.0.1:{PORT}"


def run(tool, *arguments, status=0, text=True):
    """Runs one of the tools, which Debian calls by its upstream name with a second c."""
    done = subprocess.run(
        [f"memc{tool}", *arguments], capture_output=True, text=text, timeout=60, check=False
    )
    assert done.returncode == status, (tool, arguments, done)
    return done.stdout


def each_protocol(test):
    def both():
        for protocol in [[], ["--binary"]]:
            run("flush", SERVER, *protocol)
            with tempfile.TemporaryDirectory() as folder:
                os.chdir(folder)
                test(protocol)
                os.chdir("/")

    return both


@each_protocol
def test_files_are_stored_and_read(protocol):
    contents = bytes(range(256)) * 3000
    with open("file", "wb") as file:
        file.write(contents)
    run("cp", SERVER, *protocol, "--flag=0", "--expire=0", "file")
    run("exist", SERVER, *protocol, "file")
    assert run("cat", SERVER, *protocol, "file", text=False).rstrip(b"\n") == contents
    run("touch", SERVER, *protocol, "--expire=1000", "file")
    run("rm", SERVER, *protocol, "file")
    run("exist", SERVER, *protocol, "file", status=1)


@each_protocol
def test_stats_and_ping_answer(protocol):
    assert "curr_items: 0" in run("stat", SERVER, *protocol)
    run("ping", SERVER)


def test_keys_are_dumped():
    run("flush", SERVER)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name in ["one", "two"]:
            with open(name, "w", encoding="ascii") as file:
                file.write(name)
        run("cp", SERVER, "one", "two")
        assert set(run("dump", SERVER).split()) == {"one", "two"}
        os.chdir("/")


# It sends a time with delete and wants an error, as memcached up to 1.6.18 answers; 1.6.45
# ignores what follows the key.
CHANGED_SINCE = {"ascii delete", "ascii delete noreply"}


def test_its_own_test_of_a_server_passes():
    for protocol in ["-a", "-b"]:
        done = subprocess.run(
            ["memccapable", "-h", "127.0.0.1", "-p", PORT, protocol],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        # A test that fails has its result in the other stream.
        results = re.findall(r"((?:ascii|binary)(?: [a-z]+)+?) {2,}(\[pass\])?", done.stdout)
        failed = {name for name, result in results if not result}
        assert failed == (CHANGED_SINCE if protocol == "-a" else set()), done
        assert len(results) >= 27, done


promises.keep(dict(globals()))
