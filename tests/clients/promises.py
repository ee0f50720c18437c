"""Runs the functions of a script whose names begin with `test_` and counts them."""

import sys
import traceback


def keep(namespace):
    """Calls every test in the namespace; the process fails if one of them does."""
    passed = failed = 0
    for name, test in namespace.items():
        if not name.startswith("test_"):
            continue
        try:
            test()
            passed += 1
        except Exception:
            print(f"FAILED {name}", file=sys.stderr)
            traceback.print_exc()
            failed += 1
    print(f"{sys.argv[0]}: {passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)
