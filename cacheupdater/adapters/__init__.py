"""The connections to the outside: one module per port and technology, named `<port>_<technology>`.

Each adapter translates between a port of `cacheupdater.ports` and one driver, and turns the driver's errors into ours.
Adapters take plain values, and know neither the configuration nor each other. `cacheupdater.service` puts them together.
"""
