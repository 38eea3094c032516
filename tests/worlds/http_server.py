"""An HTTP server in threads of this process."""

import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RDWR
from threading import Thread


class Request(BaseHTTPRequestHandler):
    """A request. `body` reads its contents, and `answer` replies to it."""

    protocol_version = "HTTP/1.1"

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, status: int, content: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def cut(self) -> None:
        """End the connection."""
        self.close_connection = True
        self.connection.shutdown(SHUT_RDWR)

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        # Clients may close the connection.
        if not isinstance(sys.exception(), OSError):
            super().handle_error(*_)  # type: ignore[arg-type]


@contextmanager
def http_server(
    respond: Callable[[Request], None], tls: ssl.SSLContext | None = None
) -> Iterator[str]:
    """The address of a server that calls `respond` for each request, until the block ends."""

    class Handler(Request):
        def respond(self) -> None:
            respond(self)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = respond  # noqa: N815

    server = _Server(("127.0.0.1", 0), Handler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
