"""What the errors of the streams' Redis mean: wait, grant a right, or remove what is not ours."""

from __future__ import annotations

import pytest
from redis import exceptions as redis_errors

from cacheupdater.adapters.depot_redis.replies import translated
from cacheupdater.errors import Faulty, Forbidden, Unavailable

SCRIPT = "Error running script (call to f_1): @user_script:9: @user_script: 9: "


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (TimeoutError(), Unavailable, "did not answer in time"),
        (redis_errors.TimeoutError("Timeout reading from c4n4ry"), Unavailable, "did not answer in time"),
        (redis_errors.ConnectionError("Error 111 connecting"), Unavailable, "cannot be used now"),
        (redis_errors.OutOfMemoryError("command not allowed"), Unavailable, "cannot be used now"),
        (redis_errors.ResponseError(SCRIPT + "-OOM command not allowed"), Unavailable, "OOM"),
        (redis_errors.ResponseError("FULL {hints:1}:kept has 10 packs of changes"), Unavailable, "10 packs"),
        (redis_errors.MovedError("1 127.0.0.1:7000"), Unavailable, "cannot be used now"),
        (redis_errors.NoPermissionError("User c4n4ry has no permissions to run"), Forbidden, "this user has"),
        (
            redis_errors.ResponseError(SCRIPT + "The user executing the script can't run"),
            Forbidden,
            "may not",
        ),
        (redis_errors.ResponseError(SCRIPT + "-WRONGTYPE Operation against"), Faulty, "remove the keys"),
        (redis_errors.ResponseError("unknown command"), Faulty, "6.2 or newer"),
    ],
)
def test_an_error_says_what_the_caller_can_do_and_names_no_user(error, kind, said):
    ours = translated(error, "hints")
    assert type(ours) is kind
    assert said in str(ours)
    assert "c4n4ry" not in str(ours)
