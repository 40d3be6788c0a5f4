"""`cacheupdater demo`: one shop, four applications with the same readers and row budget, and the stale reads of each.

`cli.demo` runs it for half a minute on a Redis, a database and an updater of its own. The demonstration measures and decides
nothing for the service; only that command imports it. Only this part of the package uses the client as an application would.

The folder `group` has the other demonstration: two updaters that share a topic. Both open the shop by `opening` (`lanes`,
`shop`, `catalogue`, `ledger`), start updaters by `process`, and show what they find by `picture` and `words`. Every other
module here belongs to the first one.
"""
