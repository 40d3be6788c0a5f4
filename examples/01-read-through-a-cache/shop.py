"""The shop's database.

python shop.py DATABASE                 make it
python shop.py DATABASE NUMBER PRICE    change a price
"""

import sqlite3
import sys

database, *change = sys.argv[1:]
with sqlite3.connect(database) as shop:
    if change:
        number, price = map(int, change)
        shop.execute("UPDATE products SET price = ? WHERE id = ?", (price, number))
    else:
        shop.execute("CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT, price INTEGER)")
        shop.executemany("INSERT INTO products VALUES (?, ?, ?)", [(7, "teapot", 900), (8, "cup", 300)])
