"""A cache of pages with a counter of visits and a limit of requests, by redis-py.

    pip install redis
    python page_cache.py redis://127.0.0.1:1978
"""

import sys

import redis

CACHED_SECONDS = 60
REQUESTS_PER_MINUTE = 100


def is_allowed(client, user):
    """Counts a request of a user, and returns whether it is within the limit."""
    pipe = client.pipeline()
    pipe.set(f"requests:{user}", 0, ex=60, nx=True)
    pipe.incr(f"requests:{user}")
    return pipe.execute()[1] <= REQUESTS_PER_MINUTE


def page(client, path):
    """Returns a page from the cache, or makes it."""
    client.incr(f"visits:{path}")
    cached = client.get(f"page:{path}")
    if cached is not None:
        return cached, "from the cache"
    made = f"<h1>{path}</h1>"
    client.set(f"page:{path}", made, ex=CACHED_SECONDS)
    return made, "made"


def main():
    url = sys.argv[1] if len(sys.argv) > 1 else "redis://127.0.0.1:1978"
    client = redis.Redis.from_url(url, decode_responses=True)
    for _ in range(2):
        if is_allowed(client, "ann"):
            print(*page(client, "/home"))
    print("visits:", client.get("visits:/home"))
    for key in client.scan_iter(match="page:*"):
        print(key, "expires in", client.ttl(key), "s")


main()
