"""Child processes: a warm zygote that forks them, or one fresh interpreter. Run as a script, never imported by the suite.

For: running a child program with other environment variables, before anything of this project or of a vendor is imported there. The
zygote has torch and nothing of the project, so a fork costs a tenth of a second instead of torch's import. Not for: ranks (a pool of
their own), or for knowing what a child program is (`child_main.py`).

Usage: `zygote_server.py zygote CONTROL_FD [LISTEN_FD]` serves requests (one line of JSON each) until the other end of CONTROL closes; with
LISTEN, a zygote is forked for whoever connects there, until CONTROL closes. `zygote_server.py once RESULT_FD` reads one request from
standard input and answers on the descriptor.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # its own folder has names that must not shadow anybody's

from conformance import warm_server

LOG_LIMIT = 8000  # characters of a child's output that are handed back


def run_request(request: dict[str, Any]) -> dict[str, Any]:
    """Run one child program here; the answer is `{"value": …}` or `{"error": …, "type": …}`."""
    try:
        sys.path[:] = request["sys_path"]
        os.chdir(request["directory"])
        if "torch" in sys.modules:
            warm_server.import_device_backends()
        from conformance import child_main  # type: ignore[import-not-found, unused-ignore]

        return {"value": child_main.run(request)}
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the child's answer
        return {"error": traceback.format_exc(), "type": type(error).__name__, "message": str(error)}


def send(descriptor: int, answer: dict[str, Any]) -> None:
    """Write one line of JSON, whole."""
    data = json.dumps(answer).encode() + b"\n"
    while data:
        data = data[os.write(descriptor, data) :]


def serve(control: socket.socket) -> None:
    """Answer requests one after the other until the client closes its end."""
    pending = b""
    while True:
        while b"\n" not in pending:
            received = control.recv(65536)
            if not received:
                return
            pending += received
        line, _, pending = pending.partition(b"\n")
        request = json.loads(line)
        if "preload" in request:
            warm_server.preload(request)
            continue
        answer = fork_child(request, control)
        if answer is None:
            return
        send(control.fileno(), answer)


def fork_child(request: dict[str, Any], control: socket.socket) -> dict[str, Any] | None:
    """Fork, run, reap. None when the suite went away meanwhile; the child and its own children are then ended."""
    read_end, write_end = os.pipe()
    with tempfile.TemporaryFile() as log:
        child = os.fork()
        if child == 0:
            become_child(request, read_end, write_end, control, log.fileno())
        os.close(write_end)
        answer, status = collect(child, read_end, control, float(request["timeout"]))
        os.close(read_end)
        log.seek(0, os.SEEK_END)
        log.seek(max(0, log.tell() - LOG_LIMIT))
        output = log.read().decode(errors="replace")
    if answer is None:
        return None
    return {**answer, "status": status, "output": output}


def become_child(request: dict[str, Any], read_end: int, write_end: int, control: socket.socket, log: int) -> None:
    """Never returns: the child's whole life."""
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        control.close()
        os.close(read_end)
        os.dup2(log, 1)
        os.dup2(log, 2)
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr] # else a process that dies takes it along
        os.environ.clear()
        os.environ.update(request["environment"])
        answer = run_request(request)
        sys.stdout.flush()
        sys.stderr.flush()
        send(write_end, answer)
    finally:
        os._exit(0)


def collect(child: int, read_end: int, control: socket.socket, timeout: float) -> tuple[dict[str, Any] | None, int]:
    """The child's answer and wait status; its process group is ended afterwards in any case."""
    deadline = time.monotonic() + timeout
    data, answer = b"", None
    while True:
        ready, _, _ = select.select([read_end, control.fileno()], [], [], max(0.0, deadline - time.monotonic()))
        if control.fileno() in ready and not control.recv(1, socket.MSG_PEEK):
            break
        if not ready:
            answer = {"timeout": timeout}
            break
        if read_end in ready:
            received = os.read(read_end, 65536)
            if not received:
                answer = json.loads(data) if data.endswith(b"\n") else {"died": True}
                break
            data += received
    if answer is not None and "timeout" not in answer:
        status = os.waitpid(child, 0)[1]
        end_group(child)
        return answer, status
    end_group(child)
    return answer, os.waitpid(child, 0)[1]


def end_group(child: int) -> None:
    """End a child and whatever it started."""
    try:
        os.killpg(child, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        try:
            os.kill(child, signal.SIGKILL)
        except ProcessLookupError:
            return


def main() -> None:
    """See the module's docstring."""
    sys.path.pop(0)
    mode, *descriptors = sys.argv[1:]
    if mode == "once":
        answer = run_request(json.loads(sys.stdin.readline()))
        sys.stdout.flush()
        send(int(descriptors[0]), answer)
        os._exit(0)
    warm_server.serve_on(descriptors, serve)


if __name__ == "__main__":
    main()
