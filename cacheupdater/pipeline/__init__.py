"""The asyncio shell around the core: it does what the engine decides, through the ports.

In the order in which a hint flows: `intake`, (the engine,) `load`, `write`, `commit`; `partition` holds them
together for one owned partition, `supervisor` follows the ownership of all. Nothing here knows a driver.
"""
