"""A dashboard that listens, for tests that need more than its application."""

import socket
import threading

import uvicorn

from unstuck.view.dashboard.app import KEEP, make_app
from waiting import eventually


class Server:
    """The dashboard of a directory, on a free port of this machine."""

    def __init__(self, directory):
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.server = uvicorn.Server(uvicorn.Config(make_app(directory), log_level="warning", timeout_keep_alive=KEEP))
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]}, daemon=True)

    def __enter__(self):
        self.thread.start()
        assert eventually(lambda: self.server.started)
        return self.address

    def __exit__(self, *_):
        self.server.should_exit = True
        self.thread.join(10)
