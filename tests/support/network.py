"""A stretch of network between a client and a server on this machine, which a test can break."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from sqlalchemy import make_url

_PIECE: Final = 65536


class Network:
    """Passes on what it gets. `swallow`: nothing arrives and nobody is told; `cut`: connections are closed, new ones
    refused; `heal`: all is well again, and what was swallowed arrives."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._passes = threading.Event()
        self._passes.set()
        self._is_cut = False
        self._ends: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def swallow(self) -> None:
        self._passes.clear()

    def cut(self) -> None:
        self._is_cut = True
        self._close_all()

    def heal(self) -> None:
        self._is_cut = False
        self._passes.set()

    def close(self) -> None:
        self._listener.close()
        self.cut()
        self._passes.set()

    def _close_all(self) -> None:
        while self._ends:
            with suppress(OSError):
                self._ends.pop().shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._join, args=(near,), daemon=True).start()

    def _join(self, near: socket.socket) -> None:
        self._passes.wait()
        with near, suppress(OSError), socket.create_connection(self._server) as far:
            self._ends += [near, far]
            if self._is_cut:
                return
            back = threading.Thread(target=self._pass, args=(far, near), daemon=True)
            back.start()
            self._pass(near, far)
            back.join()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(_PIECE):
                self._passes.wait()
                sink.sendall(piece)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def network_to(url: str) -> Iterator[tuple[Network, str]]:
    """A network to the server of this URL, and the URL that leads through it."""
    server = make_url(url)
    assert server.host is not None
    assert server.port is not None
    network = Network(server.host, server.port)
    try:
        yield network, server.set(host="127.0.0.1", port=network.port).render_as_string(hide_password=False)
    finally:
        network.close()
