"""Starts the program quickly: as forks of a process that has already loaded LibTorch."""

import atexit
import ctypes
import os
import socket
import struct
import subprocess
import threading

PR_SET_CHILD_SUBREAPER = 36


class ForkServer:
    """The program with tests/cli/fork_server.cpp preloaded, started at the first request; thread-safe."""

    def __init__(self, program, preload):
        self.program, self.preload = program, preload
        self.lock = threading.Lock()
        self.socket = None

    def begin(self):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self.server = subprocess.Popen(
            [self.program], pass_fds=[theirs.fileno()],
            env={**os.environ, "LD_PRELOAD": self.preload, "MILLRACE_FORK_SERVER": str(theirs.fileno())})
        theirs.close()
        atexit.register(self.end)

    def end(self):
        self.socket.close()
        self.server.wait()

    def fork(self, words, streams):
        """Starts the program as a child of ours, with these words and streams; returns its process id."""
        files = [f"/proc/{os.getpid()}/fd/{stream}" for stream in streams]
        request = b"".join(os.fsencode(word) + b"\0" for word in [*files, os.getcwd(), *words])
        with self.lock:
            if self.socket is None:
                self.begin()
            self.socket.send(request)
            return struct.unpack("i", self.socket.recv(4))[0]


class ForkedProgram(subprocess.Popen):
    """A Popen whose process is forked by the server; all three streams must be redirected."""

    def __init__(self, server, words, **options):
        self.fork_server = server
        super().__init__(words, **options)

    def _execute_child(self, words, *options):
        # Their place since Python 3.9: for each stream both ends of a pipe, or the given file.
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite = options[9:15]
        try:
            self.pid = self.fork_server.fork(words, [p2cread, c2pwrite, errwrite])
            self._child_created = True
        finally:
            self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)
