"""A product page: looks into Redis, and into the database when Redis has nothing.

python before.py REDIS_URL DATABASE NUMBER...
"""

import json
import sqlite3
import sys

from redis import Redis

redis_url, database, *numbers = sys.argv[1:]
cache = Redis.from_url(redis_url)
shop = sqlite3.connect(database)


def product(number: str) -> dict[str, object]:
    """As it is shown to a shopper."""
    key = f"product:{number}"
    body = cache.get(key)
    if body is None:
        row = shop.execute("SELECT id, name, price FROM products WHERE id = ?", (number,)).fetchone()
        body = json.dumps(dict(zip(("id", "name", "price"), row, strict=True)))
        cache.set(key, body, ex=600)
    return json.loads(body)


for each in numbers:
    print(product(each))
