"""The part of Redis' replies that may be shown."""

from __future__ import annotations

from redis.exceptions import NoPermissionError, ResponseError

from cacheupdater.adapters.writer_redis.replies import said_by, text_of
from cacheupdater_client.protocol.fence import WRITTEN, Failed


def test_a_command_that_is_not_known_is_told_without_its_arguments():
    said = "unknown command 'EVALSHA', with args beginning with: 'ab12' '2' 'product:7' 'c4n4ry' "
    assert text_of(ResponseError(said)) == "unknown command 'EVALSHA'"


def test_a_code_that_redis_py_takes_away_is_put_back():
    assert text_of(NoPermissionError("this user may not")) == "NOPERM this user may not"


def test_the_user_whom_redis_names_within_a_script_is_not_told():
    """As Redis 7 says it; Redis 6 names nobody."""
    said = b"-NOPERM ACL failure in script: User c4n4ry has no permissions to run the 'set' command"
    assert said_by([1, said]) == [
        WRITTEN,
        Failed("NOPERM ACL failure in script: this user has no permissions to run the 'set' command"),
    ]
