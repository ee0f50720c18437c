"""Django's tests of a backend of caches, for this one."""

import pathlib
import tempfile

from cache.tests import BaseCacheTests, caches_setting_for_tests
from django.core.cache import cache, caches
from django.test import TestCase, override_settings
from django.utils.safestring import SafeString, mark_safe

# In the folder of the run, which is removed after it.
FOLDER = tempfile.mkdtemp()


def setting(**options):
    return caches_setting_for_tests(
        BACKEND="cabinet.django.CabinetCache", LOCATION=FOLDER, OPTIONS=options
    )


@override_settings(CACHES=setting(pickle=True))
class CabinetCacheTests(BaseCacheTests, TestCase):
    def tearDown(self):
        cache.clear()

    # The cache is limited by bytes, not by a number of values.

    def test_cull(self):
        pass

    def test_zero_cull(self):
        pass

    def test_cull_delete_when_store_empty(self):
        pass

    def test_tags_files_and_counts(self):
        cache.set("tagged", "value", tag="tag")
        cache.set("plain", "value")
        self.assertEqual(cache.get("tagged", tag=True), ("value", "tag"))
        self.assertEqual(cache.evict("tag"), 1)
        self.assertEqual(cache.pop("plain"), "value")
        self.assertIsNone(cache.get("plain"))
        with open(__file__, "rb") as reader:
            cache.set("file", reader, read=True)
        self.assertEqual(cache.get("file"), pathlib.Path(__file__).read_bytes())
        self.assertEqual(cache.expire(), 0)

    def test_memoize(self):
        calls = []

        @cache.memoize(name="work", version=2)
        def work(number):
            calls.append(number)
            return number

        self.assertEqual([work(1), work(1), work(2)], [1, 1, 2])
        self.assertEqual(calls, [1, 2])

    def test_results_are_of_a_version_and_a_prefix(self):
        def result(backend, version=None):
            calls.append(len(calls))
            return backend.memoize(name="work", version=version)(lambda: calls[-1])()

        calls = []
        other = caches["prefix"]
        kinds = [(cache, None), (cache, 2), (other, None), (other, 2)]
        first = [result(*kind) for kind in kinds]
        self.assertEqual(first, [0, 1, 2, 3])
        self.assertEqual([result(*kind) for kind in kinds], first)

    def test_arguments_of_diskcaches_backend(self):
        self.assertTrue(cache.add("a", 1, retry=False))
        self.assertTrue(cache.set("a", 2, retry=True))
        self.assertEqual(cache.incr("n", 2, default=5), 7)
        self.assertEqual(cache.decr("n", 2, default=5, retry=True), 5)
        cache.cache("part").set("a", 1)
        cache.deque("line").append(1)
        cache.index("names")["a"] = 1
        cache.create_tag_index()
        cache.drop_tag_index()


@override_settings(CACHES=setting())
class WithoutPickleTests(TestCase):
    def test_safe_texts_stay_safe(self):
        cache.set("safe", mark_safe("<b>"))
        cache.set("list", ["<b>", 1, (2,)])
        self.assertIs(type(cache.get("safe")), SafeString)
        self.assertEqual(cache.get("list"), ["<b>", 1, (2,)])
        with self.assertRaisesMessage(TypeError, "pickle=True"):
            cache.set("class", object)


del TestCase
