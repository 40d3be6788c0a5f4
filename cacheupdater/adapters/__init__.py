"""The doors to the outside: one module per port and technology, named `<port>_<technology>`.

Each translates between a port of `cacheupdater.ports` and one driver, and turns the driver's errors into ours. They
take plain values, know neither the configuration nor each other, and are put together in `cacheupdater.service`.
"""
