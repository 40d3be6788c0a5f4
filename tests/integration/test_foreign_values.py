"""An application that cached before meets a running updater: its values stay, and the operator is told."""

from __future__ import annotations

import json
import pickle
import tempfile
from pathlib import Path

import pytest
from hints.peer import HintPeer
from live.updater_process import Updaters, config, eventually

from cacheupdater_client.protocol.wire import CHANGE, MISS, TOUCH

PICKLED = pickle.dumps({"id": 7, "price": 8.9})


@pytest.fixture
def start(redis_url):
    with tempfile.TemporaryDirectory(prefix="cacheupdater-") as folder:
        updaters = Updaters(Path(folder))
        yield lambda namespaces: updaters.start(config(redis_url, {"code": {"budget": "5000/s"}}, namespaces))
        updaters.close()


def banner(**value):
    return {
        "key": "banner:{slot}",
        "load": {"python": "live.loaders:banners", "source": "code"},
        "refresh": {"every": "100ms"},
        "value": value,
    }


def test_pickles_stay_and_a_namespace_of_nobody_is_filled(start, plain):
    keys = [f"banner:{n}" for n in range(25)]
    plain.mset(dict.fromkeys(keys, PICKLED))
    updater = start({"banner": banner(), "other": banner() | {"key": "other:{slot}"}})
    with HintPeer(updater.socket) as peer:
        for _ in range(3):
            peer.hint(TOUCH, *[key.encode() for key in keys])
            peer.hint(CHANGE, keys[0].encode())
        peer.hint(MISS, b"banner:new", b"other:new")
        eventually(lambda: plain.exists("other:new"))
        eventually(lambda: "are not ours" in json.dumps(updater.messages))
    assert set(plain.mget(keys)) == {PICKLED}
    assert not plain.exists("banner:new")


def test_values_give_way_where_the_configuration_says_so(start, plain):
    plain.set("banner:1", PICKLED)
    updater = start({"banner": banner(foreign="replace")})
    with HintPeer(updater.socket) as peer:
        peer.hint(TOUCH, b"banner:1")
        eventually(lambda: plain.get("banner:1") != PICKLED)
