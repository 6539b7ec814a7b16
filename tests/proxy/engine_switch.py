"""A wire to the engine that can be cut and mended: the engine itself is shared by all tests, and stays."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread


class Wire(ThreadingTCPServer):
    """Passes bytes on between clients and the engine at `port`, unless it is `cut`."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), Passing)
        self.engine_port = port
        self.is_cut = False
        self.open: set[socket.socket] = set()

    @property
    def url(self) -> str:
        """The address at which the engine seems to be."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def cut(self) -> None:
        """Break every connection, and take no new ones."""
        self.is_cut = True
        for one in list(self.open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """Take connections again."""
        self.is_cut = False


class Passing(BaseRequestHandler):
    """One connection."""

    server: Wire

    def handle(self) -> None:
        """Pass on until either side ends."""
        if self.server.is_cut:
            return
        with socket.create_connection(("127.0.0.1", self.server.engine_port)) as engine:
            self.server.open |= {self.request, engine}
            back = Thread(target=pump, args=(engine, self.request), daemon=True)
            back.start()
            pump(self.request, engine)
            back.join()
            self.server.open -= {self.request, engine}


def pump(source: socket.socket, target: socket.socket) -> None:
    """Pass on what `source` says until it ends."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


@contextmanager
def run_wire(port: int) -> Iterator[Wire]:
    """A wire to the engine at `port`, until the block ends."""
    wire = Wire(port)
    thread = Thread(target=wire.serve_forever, daemon=True)
    thread.start()
    try:
        yield wire
    finally:
        wire.cut()
        wire.shutdown()
        wire.server_close()
        thread.join()
