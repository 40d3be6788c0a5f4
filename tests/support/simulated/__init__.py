"""The simulated world around the real service: what `tests/simulation` runs schedules in.

Real are the engine, the partitions, the pipeline and the supervisor of the updater, and the buffer and the outbox of
the client. Fake are time (`cacheupdater.testing.virtual_loop`) and everything behind a port: `broker` and `group`
(durable queues of two kinds, over a `topic`; `adapter` puts the real Kafka adapter on top of the second), `cache` (Redis
with the fence), `database`; `application` is a user's program, `updater` one process of the service, `process` what can
be stopped and killed.
`plan` draws one schedule from a seed, `faults` what goes wrong in it and how often, `world` carries it out, `history`
is what was seen from outside, and `invariants` judges it. `plants` are faults of the service put in on purpose.
"""
