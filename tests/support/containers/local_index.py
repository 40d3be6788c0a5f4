"""A package index of one folder, on this machine alone: only packages in the folder can be installed from it."""

from __future__ import annotations

import hashlib
import threading
from contextlib import contextmanager
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from packaging.utils import canonicalize_name


@cache
def _digest(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


class _Index(SimpleHTTPRequestHandler):
    """`/simple/NAME/` as in PEP 503; files lie at the top."""

    def do_GET(self):
        parts = self.path.strip("/").split("/")
        if parts[0] != "simple":
            super().do_GET()
            return
        files = [
            each
            for each in sorted(Path(self.directory).iterdir())
            if len(parts) > 1 and canonicalize_name(each.name.split("-")[0]) == canonicalize_name(parts[1])
        ]
        page = "".join(
            f'<a href="/{each.name}#sha256={_digest(each)}">{each.name}</a>\n' for each in files
        ).encode()
        self.send_response(200 if files else 404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_):
        pass


@contextmanager
def serving(folder):
    """Serves the folder; yields its URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Index, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/simple/"
        finally:
            server.shutdown()
            thread.join()
