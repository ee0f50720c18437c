"""Runs CPython's own tests of `dbm` and `shelve` over `cabinet.dbm`, under the name "dbm.cabinet".

Run in an empty folder. Only tests of the standard library's own function `whichdb` are left out,
which knows the modules of the standard library alone.
"""

import dbm
import sys
import types
import unittest

import cabinet.dbm

NAME = "dbm.cabinet"

module = types.ModuleType(NAME)
module.error, module.open = cabinet.dbm.error, cabinet.dbm.open
sys.modules[NAME] = module
dbm._names = [NAME]
dbm._modules = {NAME: module}
dbm._defaultmod = module
dbm.error = (dbm.error[0], cabinet.dbm.error)
dbm.whichdb = lambda file: NAME if cabinet.dbm.whichdb(file) else None

from test import mapping_tests, test_dbm, test_shelve  # noqa: E402


class Mapping(mapping_tests.BasicTestMappingProtocol):
    """CPython's tests of mappings, over a database with pickled values."""

    def _reference(self):
        return {"1": "2", "key1": "value1", "key2": (1, 2, 3)}

    def _empty_mapping(self):
        return cabinet.open("*", codec="pickle", keys="str")


class TreeMapping(Mapping):
    """The same over a tree."""

    def _empty_mapping(self):
        return cabinet.open("+", codec="pickle", keys="str")


def suite():
    loader = unittest.TestLoader()
    tests = unittest.TestSuite()
    for found in (test_dbm, test_shelve):
        for case in vars(found).values():
            is_case = isinstance(case, type) and issubclass(case, unittest.TestCase)
            if is_case and case.__name__ != "WhichDBTestCase":
                tests.addTests(loader.loadTestsFromTestCase(case))
    for case in (Mapping, TreeMapping):
        tests.addTests(loader.loadTestsFromTestCase(case))
    return tests


if __name__ == "__main__":
    result = unittest.TextTestRunner(verbosity=1).run(suite())
    # Files of `test_dbm` are as many as there are kinds.
    sys.exit(not result.wasSuccessful() or result.testsRun < 50)
