"""Other processes of the tests: programs, children of forks, and children of killed programs."""

import contextlib
import os
import signal
import subprocess
import sys
import traceback


def in_process(program, *arguments):
    """Starts a program in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def in_child(run):
    """Runs a function in the child of a fork. Fails if it raises or if the child crashes."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            run()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.WIFEXITED(status), f"the child ended with {status}"
    assert os.WEXITSTATUS(status) == 0, "see the output of the child"


#: A function that leaves a child, which has none of the standard streams, and kills its caller.
_FORK_AND_DIE = """
import os, time

def fork_and_die():
    child = os.fork()
    if child == 0:
        os.closerange(0, 3)
        time.sleep(600)
    print(child, flush=True)
    os.kill(os.getpid(), 9)
"""


@contextlib.contextmanager
def child_of_killed_parent(program, *arguments):
    """Runs a program that calls `fork_and_die` at its end. Its child lives as long as the block."""
    command = [sys.executable, "-c", _FORK_AND_DIE + program, *arguments]
    parent = subprocess.run(command, capture_output=True, text=True)
    assert (parent.returncode, parent.stderr) == (-signal.SIGKILL, "")
    try:
        yield
    finally:
        os.kill(int(parent.stdout), signal.SIGKILL)
