"""libmemcached's own tools, its test of both protocols among them.

Arguments: port of a running server, folder of the programs.
"""

import os
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


def test_its_own_test_of_a_server_passes():
    for protocol in ["-a", "-b"]:
        answer = run("capable", "-h", "127.0.0.1", "-p", PORT, protocol)
        assert answer.endswith("All tests passed\n") and answer.count("[pass]") >= 27, answer


promises.keep(dict(globals()))
