"""Calls of the fence's scripts over a plain redis-py client, for the fence tests."""

from __future__ import annotations

from cacheupdater_client.protocol import fence, lease


def load_scripts(redis):
    for script in (fence.COMMIT, fence.INVALIDATE, lease.PROLONG):
        assert redis.script_load(script.text) == script.sha


def token(redis):
    return fence.token_of(*redis.time())


def commit(redis, token, *entries, **options):
    args = fence.commit_args(token, entries, **options)
    return fence.outcomes(redis.execute_command("EVALSHA", fence.COMMIT.sha, *args))


def invalidate(redis, *keys, **options):
    args = fence.invalidate_args(keys, **options)
    return fence.outcomes(redis.execute_command("EVALSHA", fence.INVALIDATE.sha, *args))


def prolong(redis, *keys, grace, form=None):
    args = lease.prolong_args(lease.NO_OWNER, keys, grace, form=form)
    return fence.outcomes(redis.execute_command("EVALSHA", lease.PROLONG.sha, *args))


def write_through(redis, key, value, ttl_ms, since, **options):
    args = fence.write_through_args(key, value, ttl_ms, since, **options)
    [outcome] = fence.outcomes(redis.execute_command("EVALSHA", fence.INVALIDATE.sha, *args))
    return outcome


def floor(redis, key):
    text = redis.get(fence.floor_name(key))
    return None if text is None else int(text)


def set_floor(redis, key, token, ttl_ms=60_000):
    redis.set(fence.floor_name(key), token, px=ttl_ms)
