"""A server on this machine that answers as a function says."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[str, str | None], tuple[int, Any]]
"""From path and authorization to a status and a body: bytes as they are, anything else as JSON."""


Done = Callable[[str, str | None, Any], tuple[int, Any]]
"""From path, authorization and the JSON of a POST or PATCH."""


@contextmanager
def answering(answer: Answer, done: Done | None = None) -> Iterator[str]:
    """Its address; POST and PATCH are for `done`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply(*answer(self.path, self.headers.get("Authorization")))

        def do_POST(self) -> None:
            assert done is not None, f"nobody answers POST {self.path}"
            given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.reply(*done(self.path, self.headers.get("Authorization"), given))

        do_PATCH = do_POST  # noqa: N815 - both say what is to be done

        def reply(self, code: int, body: Any) -> None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
