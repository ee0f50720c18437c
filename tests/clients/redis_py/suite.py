"""redis-py's own tests, out of its source distribution, with this server in place of Redis.

Arguments: folder of the source distribution, version of the protocol, port of a running server.
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import upstream  # noqa: E402

FILES = [
    "test_commands",
    "test_pipeline",
    "test_pubsub",
    "test_encoding",
    "test_connection",
    "test_connection_pool",
    "test_lock",
    "test_scripting",
]

# The same by the asynchronous client, which speaks version 3 by default.
ASYNCHRONOUS_FILES = [
    "test_asyncio/test_pipeline",
    "test_asyncio/test_pubsub",
    "test_asyncio/test_encoding",
    "test_asyncio/test_lock",
    "test_asyncio/test_scripting",
]

# Tests of these marks need a cluster, modules, TLS files or accounts of a vendor.
MARKS = " and ".join(
    f"not {mark}"
    for mark in ["onlycluster", "redismod", "ssl", "cp_integration", "multidb_integration"]
)

folder, protocol, port = sys.argv[1:]
files = FILES + (ASYNCHRONOUS_FILES if protocol == "3" else [])
arguments = ["-m", MARKS, f"--redis-url=redis://127.0.0.1:{port}/0", f"--protocol={protocol}"]
arguments += [f"tests/{file}.py" for file in files]
upstream.run(folder, HERE / "left_out.txt", 400, arguments, plugins=["patience"])
