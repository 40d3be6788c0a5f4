"""What is told of a reply of Redis."""

from __future__ import annotations

from redis.exceptions import NoPermissionError, ResponseError

from cacheupdater.adapters.writer_redis.replies import text_of


def test_a_command_that_is_not_known_is_told_without_its_arguments():
    said = "unknown command 'EVALSHA', with args beginning with: 'ab12' '2' 'product:7' 'c4n4ry' "
    assert text_of(ResponseError(said)) == "unknown command 'EVALSHA'"


def test_a_code_that_redis_py_takes_away_is_put_back():
    assert text_of(NoPermissionError("this user may not")) == "NOPERM this user may not"
