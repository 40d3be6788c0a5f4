"""What committed transactions have really changed, by PostgreSQL's own triggers: the model that invalidated keys must equal.

Each change of a row writes the row before and after it into the table `audit`, in the same transaction. So a rollback, of a
savepoint too, takes the entries back, and a statement that was never seen by Python has its entries.
"""

from __future__ import annotations

TABLES = """
CREATE TABLE products (id serial PRIMARY KEY, name text NOT NULL, price int NOT NULL CHECK (price >= 0));
CREATE TABLE prices (id serial PRIMARY KEY, sku text NOT NULL, product_id int, amount int NOT NULL CHECK (amount >= 0));
CREATE TABLE tags (id serial PRIMARY KEY, name text NOT NULL);
CREATE TABLE tagged (id serial PRIMARY KEY, tag_id int NOT NULL, product_id int NOT NULL);
CREATE TABLE audit (at serial PRIMARY KEY, kind text NOT NULL, before json, after json);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO audit (kind, before, after) VALUES (TG_TABLE_NAME,
    CASE WHEN TG_OP <> 'INSERT' THEN row_to_json(OLD) END, CASE WHEN TG_OP <> 'DELETE' THEN row_to_json(NEW) END);
  RETURN NULL;
END $$;
CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON products FOR EACH ROW EXECUTE FUNCTION note();
CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON prices FOR EACH ROW EXECUTE FUNCTION note();
"""


def tens(amount):
    """A key that depends on a computed value."""
    return f"tens:{amount // 10}"


def keys_of(kind, row):
    """The keys of a row, as the tests give them to `watch`."""
    if row is None:
        return set()
    if kind == "products":
        return {f"product:{row['id']}"}
    named = {f"price:{row['sku']}", tens(row["amount"])}
    return named | ({f"product:{row['product_id']}"} if row["product_id"] is not None else set())


class Audit:
    """Reads the entries over a connection of psycopg of its own, as transactions commit them."""

    def __init__(self, connection):
        self._connection = connection

    def clear(self):
        """Empty tables, of which nothing was ever told."""
        self._connection.execute("TRUNCATE products, prices, tags, tagged RESTART IDENTITY")
        self._connection.execute("TRUNCATE audit")

    def keys(self):
        """The keys of all changes that were committed since the last call."""
        rows = self._connection.execute("DELETE FROM audit RETURNING kind, before, after").fetchall()
        return {key for kind, *both in rows for row in both for key in keys_of(kind, row)}

    def products(self):
        """The committed rows, by their keys."""
        rows = self._connection.execute("SELECT id, name, price FROM products").fetchall()
        return {f"product:{number}": {"name": name, "price": price} for number, name, price in rows}
