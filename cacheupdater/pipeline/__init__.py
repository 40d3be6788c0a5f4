"""The asyncio shell around the core: it does what the engine decides, through the ports.

A hint flows through `intake`, the engine, `load`, `write` and `commit`, in this order. `partition` connects these steps for
one owned partition, and `supervisor` follows the ownership of all partitions. Nothing here knows a driver.
"""
