"""Read-through: a value is declared once; the cache reads, fills and invalidates it. `Cache` is the entrance."""
