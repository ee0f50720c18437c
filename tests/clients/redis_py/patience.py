"""Plugin of pytest: tests with a time limit of a fraction of a second get one that a busy machine
meets. What they compare are multiples of it."""

LIMIT_SECONDS = 3.0


def pytest_collection_modifyitems(items):
    for cls in {item.cls for item in items if getattr(item, "cls", None) is not None}:
        if hasattr(cls, "SOCKET_TIMEOUT") and hasattr(cls, "PUBLISH_DELAY"):
            cls.PUBLISH_DELAY *= LIMIT_SECONDS / cls.SOCKET_TIMEOUT
            cls.SOCKET_TIMEOUT = LIMIT_SECONDS
