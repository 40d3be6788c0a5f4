"""The simulated world around the real service, in which `tests/simulation` runs schedules.

The engine, the partitions, the pipeline and the supervisor of the updater are real, and so are the buffer and the outbox of
the client. Time (`cacheupdater.testing.virtual_loop`) and everything behind a port are fake: `broker` and `group` (durable
queues of two kinds, over a `topic`; `adapter` puts the real Kafka adapter on top of the second), `cache` (Redis with the
fence), `database`. `application` is a user's program, `updater` one process of the service, `process` a process that can be
stopped and killed.

`plan` draws one schedule from a seed, and `faults` draws its faults and their rates. `world` runs it, `history` records what
is visible from outside, and `invariants` judges it. `planted_faults` puts faults into the service on purpose, which the
invariants must find.
"""
