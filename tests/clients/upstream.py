"""Runs a library's own tests, out of its source distribution, with pytest in a process of its own.

Tests of what this server does not have are left out by the plugin `selection`.
"""

import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent


def run(folder, left_out, passed_min, arguments, plugins=(), paths=(), variables={}):
    """Runs tests in a folder, and ends with the status of pytest.

    `left_out` is the file with the names of tests, beside which are the plugins. At least
    `passed_min` tests have to pass. `paths` are further folders of modules.
    """
    command = [sys.executable, "-m", "pytest", "--quiet", "--no-header", "--tb=short"]
    command += ["-p", "no:cacheprovider", "-p", "no:warnings", "-W", "ignore", "--timeout=60"]
    for plugin in ["selection", *plugins]:
        command += ["-p", plugin]
    command += [f"--left-out={left_out}", f"--passed-min={passed_min}", *arguments]
    modules = os.pathsep.join(map(str, [HERE, left_out.parent, *paths]))
    environment = os.environ | variables
    environment |= {"PYTHONPATH": modules, "PYTHONDONTWRITEBYTECODE": "1"}
    sys.exit(subprocess.run(command, cwd=folder, env=environment).returncode)
