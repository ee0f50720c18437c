"""Django's own tests of a cache, with the backend of django-redis."""

from cache.tests import BaseCacheTests, caches_setting_for_tests, redis_excluded_caches
from django.conf import settings
from django.test import TestCase, override_settings

CACHES = caches_setting_for_tests(
    base=settings.CACHES["django-redis"], exclude=redis_excluded_caches
)


@override_settings(CACHES=CACHES)
class DjangoRedisTests(BaseCacheTests, TestCase):
    incr_decr_type_error = TypeError
