"""A proxy to Redis that loses the answer to one command: Redis has run the command, but the connection is gone."""

from __future__ import annotations

import contextlib
import socket
import threading
from urllib.parse import urlsplit

PIECE = 65_536


class LossyRedis:
    """Passes everything on, as long as the block lasts. The answer to a piece with the word `loses` in it is dropped."""

    def __init__(self, url, loses):
        parts = urlsplit(url)
        self._to = (parts.hostname, parts.port)
        self._loses = loses
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listening.getsockname()[1]}{parts.path}"

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._listening.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._pass_on, args=[client], daemon=True).start()

    def _pass_on(self, client):
        """Passes on commands and answers in turn, for a client waits for its answers."""
        with client, socket.create_connection(self._to) as server, contextlib.suppress(OSError):
            while asked := client.recv(PIECE):
                server.sendall(asked)
                answer = server.recv(PIECE)
                if self._loses in asked:
                    return
                client.sendall(answer)
