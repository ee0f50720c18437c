"""Plugin of pytest: tests with a time limit of a fraction of a second get one that a busy machine
meets. What they compare are multiples of it."""

import time
import types

LIMIT_SECONDS = 3.0

# Pause in which one thread of a test leaves a lock to another one, which waits for it. If that is
# late, the first one waits for a message under the lock, for ever.
PAUSE_SECONDS = 0.3


class PatientTime:
    """The module `time`, as one of these threads sees it."""

    @staticmethod
    def sleep(seconds):
        time.sleep(max(seconds, PAUSE_SECONDS))


def pytest_collection_modifyitems(items):
    for cls in {item.cls for item in items if getattr(item, "cls", None) is not None}:
        if hasattr(cls, "SOCKET_TIMEOUT") and hasattr(cls, "PUBLISH_DELAY"):
            cls.PUBLISH_DELAY *= LIMIT_SECONDS / cls.SOCKET_TIMEOUT
            cls.SOCKET_TIMEOUT = LIMIT_SECONDS
        if cls.__name__ == "TestPubSubAutoReconnect":
            names = cls.loop.__globals__ | {"time": PatientTime}
            cls.loop = types.FunctionType(cls.loop.__code__, names)
