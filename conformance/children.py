"""Starting child processes from the suite and turning their ends into answers or typed errors.

For: checks that need a process of their own (another environment, a first use, a fork). Not for: ranks. The server side is
`zygote_server.py`, the child side `child_main.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conformance.errors import ChildDied, ChildFailed, ChildTimeout
from conformance.shared_servers import connection_to, preload_request

_SERVER = Path(__file__).with_name("zygote_server.py")
ZYGOTE = (sys.executable, str(_SERVER), "zygote")
"""The command that starts a zygote; what follows are its sockets."""
SHARED_ZYGOTE = "ACCELERATOR_CONFORMANCE_ZYGOTE"
"""The environment variable with the socket of a zygote to share (`shared_servers.py`)."""
_GRACE = 30.0  # seconds beyond a child's own limit before the zygote itself is given up


class ChildProcesses:
    """Runs child programs; owns the zygote, which starts with `warm_up` or the first request and ends with `close`.

    `preload` names modules that the zygote imports besides torch; the suite's own checks need one without any of this project. Where
    `SHARED_ZYGOTE` names a zygote that listens, that one is used.
    """

    def __init__(self, preload: tuple[str, ...] = ()) -> None:
        self._preload = preload
        self._is_answering = False
        self._zygote: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def warm_up(self) -> None:
        """Start the zygote without waiting for it."""
        if self._control is not None and (self._zygote is None or self._zygote.poll() is None):
            return
        self.close()
        self._control = connection_to(os.environ.get(SHARED_ZYGOTE, ""), socket.SOCK_STREAM) or self._started()
        if self._preload:
            self._control.sendall(preload_request(self._preload))

    def close(self) -> None:
        """End the zygote and its child; nothing is left behind."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._zygote is not None:
            if not self._is_answering:
                self._zygote.kill()  # it has no child, and may still be importing torch
            try:
                self._zygote.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._zygote.kill()
                self._zygote.wait()
            self._zygote = None
        self._is_answering = False

    def _started(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            self._zygote = subprocess.Popen([*ZYGOTE, str(theirs.fileno())], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        return ours

    def run(
        self,
        program: str,
        *,
        backend: Mapping[str, Any],
        environment: Mapping[str, str | None],
        fresh_interpreter: bool,
        timeout: float,
        arguments: Mapping[str, Any],
    ) -> Any:
        """Run `module:function` in a child and return its answer.

        Raises:
            ChildFailed: the program raised. ChildDied: the process ended by a signal or without an answer. ChildTimeout: it did not
            answer within `timeout` seconds and was ended.
        """
        request = {
            "program": program,
            "backend": dict(backend),
            "environment": _changed(os.environ, environment),
            "arguments": dict(arguments),
            "timeout": timeout,
            "sys_path": sys.path,
            "directory": os.getcwd(),
        }
        answer = self._run_fresh(request) if fresh_interpreter else self._run_forked(request)
        return _value(program, timeout, answer)

    def _run_forked(self, request: dict[str, Any]) -> dict[str, Any]:
        self.warm_up()
        control = self._control
        if control is None:
            raise ChildDied("the zygote could not be started")
        self._is_answering = True  # an interrupt may end this call while a child runs
        control.settimeout(request["timeout"] + _GRACE)
        received = b""
        try:
            control.sendall(json.dumps(request).encode() + b"\n")
            while not received.endswith(b"\n"):
                part = control.recv(65536)
                if not part:
                    raise ChildDied("the zygote ended before it answered")
                received += part
        except (OSError, ChildDied) as error:
            self.close()
            raise ChildDied(f"the zygote that forks child processes was lost while it ran {request['program']}: {error}") from error
        self._is_answering = False
        answer: dict[str, Any] = json.loads(received)
        return answer

    @staticmethod
    def _run_fresh(request: dict[str, Any]) -> dict[str, Any]:
        with tempfile.TemporaryFile() as answers:
            with subprocess.Popen(
                [sys.executable, str(_SERVER), "once", str(answers.fileno())],
                pass_fds=[answers.fileno()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=request["environment"],
                start_new_session=True,
            ) as process:
                try:
                    output, _ = process.communicate(json.dumps(request).encode() + b"\n", timeout=request["timeout"])
                except subprocess.TimeoutExpired:
                    _end_group(process.pid)
                    output, _ = process.communicate()
                    return {"timeout": request["timeout"], "output": output.decode(errors="replace")}
                finally:
                    _end_group(process.pid)
            answers.seek(0)
            data = answers.read()
        result = json.loads(data) if data else {"died": True}
        status = -process.returncode if process.returncode < 0 else process.returncode << 8
        return {**result, "status": status, "output": output.decode(errors="replace")}


def _changed(environment: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """An environment with variables set, or removed where the value is None."""
    merged = {**environment, **changes}
    return {name: value for name, value in merged.items() if value is not None}


def _end_group(process_id: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process_id, signal.SIGKILL)


def _value(program: str, timeout: float, answer: dict[str, Any]) -> Any:
    output = answer.get("output", "").strip()
    said = f"\nIts output:\n{output}" if output else ""
    if "value" in answer:
        return answer["value"]
    if "error" in answer:
        raise ChildFailed(f"{program} raised in a child process: {answer['message']}\n{answer['error']}{said}", answer["type"])
    if "timeout" in answer:
        raise ChildTimeout(f"{program} did not answer within {timeout:g} s and was ended{said}")
    status = answer["status"]
    how = f"signal {signal.Signals(os.WTERMSIG(status)).name}" if os.WIFSIGNALED(status) else f"status {os.WEXITSTATUS(status)}"
    raise ChildDied(f"the child process that ran {program} ended with {how} and gave no answer{said}")
