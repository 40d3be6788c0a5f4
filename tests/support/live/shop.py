"""The shop of the service's stories: tables, namespaces of every kind, short times."""

from __future__ import annotations

FRESH_S = 1.0  # the promise after an invalidate; usually it takes 30 ms
HOLD_S = 0.3  # `every` of the namespaces

TABLES = (
    "CREATE TABLE products (id bigint PRIMARY KEY, name text, price numeric(10, 2))",
    "INSERT INTO products SELECT n, 'product ' || n, n * 100 FROM generate_series(1, 500) n",
    "CREATE TABLE baskets (user_id bigint, shop text, body bytea, PRIMARY KEY (user_id, shop))",
    "INSERT INTO baskets VALUES (1, 'books', 'A'), (1, 'music', 'B'), (2, 'books', 'C')",
    "CREATE TABLE orders (user_id bigint, id bigint, total integer)",
    "INSERT INTO orders VALUES (1, 10, 5), (1, 11, 6), (2, 12, 7)",
    "CREATE TABLE users (id bigint PRIMARY KEY, name text, mail text, age integer)",
    "INSERT INTO users VALUES (1, 'Ada', NULL, 36), (2, 'Zoë', 'z@x', 7), (4, 'Eve', 'e@x', 8), (5, 'Ann', NULL, 9)",
)
NAMESPACES = {
    "product": {
        "key": "product:{id:int}",
        "load": {"source": "main", "sql": "SELECT id, name, price FROM products WHERE id IN :id"},
        "value": {"columns": ["name", "price"]},
    },
    "basket": {
        "key": "basket:{user:int}:{shop}",
        "load": {
            "source": "main",
            "sql": "SELECT user_id AS user, shop, body FROM baskets WHERE (user_id, shop) IN :keys",
        },
        "value": {"encoding": "msgpack", "columns": ["body"]},
    },
    "orders": {
        "key": "orders:{user:int}",
        "load": {
            "source": "main",
            "sql": "SELECT user_id AS user, id, total FROM orders WHERE user_id IN :user ORDER BY id",
            "rows": "many",
        },
    },
    "user": {
        "key": "user:{id:int}",
        "load": {"source": "main", "table": "users"},
        "value": {"encoding": "hash"},
    },
    "title": {
        "key": "title:{id:int}",
        "load": {"source": "main", "table": "products"},
        "value": {"encoding": "string", "columns": ["name"]},
    },
    "body": {
        "key": "body:{user_id:int}:{shop}",
        "load": {"source": "main", "table": "baskets"},
        "value": {"encoding": "raw", "columns": ["body"]},
    },
    "banner": {"key": "banner:{slot}", "load": {"source": "code", "python": "live.loaders:banners"}},
    "price": {
        "key": "price:{id:int}:{country}",
        "load": {"source": "code", "python": "live.loaders:prices"},
    },
}
