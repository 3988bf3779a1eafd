"""Runs Snakemake's scripts in forks of one process, which imports what they need once in a run and not once per script.

`begin` starts that process, the server. From then on Snakemake starts this file in place of Python: `main` hands the
script to the server and waits for its end as if it were the script. If there is no server any more, Python runs the
script as usual.
"""

import contextlib
import os
import select
import signal
import socket
import sys

# Only what Python has loaded anyway or loads at once, as this file is run once per script, without site-packages.

#: The environment's name for the server's address.
ADDRESS = "TILEWISE_FORKS"
#: A client that is stopped between two words must not hold up the others.
PATIENCE_S = 60
#: A script has the cores that its rule says; NumPy's library would take all that it finds when it is loaded.
ALONE = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


# ---- Snakemake -------------------------------------------------------------------------------------------------------


def begin() -> None:
    """Start the server, which ends with this process, and let Snakemake's scripts be run by it.

    `sys.executable` is a word of a shell's command, as Snakemake takes it, and becomes several. If the system has no
    such sockets, all stays as it is.
    """
    import shlex
    import subprocess

    listener = socket.socket(socket.AF_UNIX)
    address = f"tilewise-{os.getpid()}-{os.urandom(8).hex()}"
    try:
        listener.bind(f"\0{address}")  # no file: nothing is left behind, and a path may be too long
        listener.listen(64)
    except OSError:
        listener.close()
        return
    with listener:
        subprocess.Popen(
            [*shlex.split(sys.executable), "-m", "tilewise.forks", str(os.getpid()), str(listener.fileno())],
            pass_fds=[listener.fileno()],
            stdin=subprocess.DEVNULL,
            env=os.environ | ALONE,
        )
    os.environ[ADDRESS] = address
    sys.executable = f"{sys.executable} -IS {shlex.quote(__file__)}"


# ---- In place of a script --------------------------------------------------------------------------------------------


def main() -> None:
    """Let the server run the command line; end as that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the script too, which ends by it
    status = _asked(sys.argv[1:])
    if status is None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL is always by default
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _asked(words: list[str]) -> int | None:
    """How a fork of the server that ran a script ended, as os.wait says it; None if there is no server to run it."""
    import marshal

    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(f"\0{os.environ[ADDRESS]}")
            if words[0].startswith("-") or not _ours(server):
                return None
            # pathlib would take 10 ms to load.
            request = marshal.dumps((words, os.getcwd(), dict(os.environ)))  # noqa: PTH109
            socket.send_fds(server, [len(request).to_bytes(8, "big")], [0, 1, 2])
            server.sendall(request)
        except (OSError, LookupError):
            return None
        answer = b""
        with contextlib.suppress(OSError):
            answer = server.recv(8)
        # The server was killed, and the script with it.
        return int.from_bytes(answer, "big") if answer else signal.SIGKILL


def _ours(connection: socket.socket) -> bool:
    """Whether the process at the other end is the same user's: an address without a file has no permissions."""
    import struct

    size = struct.calcsize("3i")
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return user == os.getuid()


# ---- The server ------------------------------------------------------------------------------------------------------


def serve(listener: socket.socket) -> list[str]:
    """Fork for every request; returns its command line in the fork, and never in the server itself."""
    import gc
    import warnings

    from tilewise.files import end_with_parent

    # A package may have started a thread when it was loaded (pyarrow under pandas does); no script needs it.
    warnings.filterwarnings("ignore", ".*multi-threaded, use of fork", DeprecationWarning)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ended, wake = socket.socketpair()
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    events = select.poll()
    events.register(listener, select.POLLIN)
    events.register(ended, select.POLLIN)
    clients: dict[int, tuple[socket.socket, int]] = {}  # by file descriptor, with the fork's id
    while True:
        place, _ = events.poll()[0]  # one at a time: a closed descriptor's number is soon another's
        if place == ended.fileno():
            ended.recv(4096)
            for client, status in _reaped(clients):
                with contextlib.suppress(OSError):
                    client.sendall(status.to_bytes(8, "big"))
                with contextlib.suppress(KeyError):  # it went before
                    events.unregister(client)
                del clients[client.fileno()]
                client.close()
        elif place == listener.fileno():
            client, _ = listener.accept()
            received = _received(client)
            if received is None:
                client.close()
                continue
            request, descriptors = received
            _import_for(os.path.join(request[1], request[0][0]))  # noqa: PTH118
            gc.freeze()  # a fork that looked for garbage in what all share would copy it
            me, fork = os.getpid(), os.fork()
            if not fork:
                end_with_parent(me)
                for other in (listener, ended, wake, client, *(held for held, _ in clients.values())):
                    other.close()
                return _become(request, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            clients[client.fileno()] = client, fork
            events.register(client, 0)  # which tells when the other end is closed
        elif place in clients:  # somebody killed the client: the script is not to outlive it
            client, fork = clients[place]
            os.kill(fork, signal.SIGKILL)
            events.unregister(client)


def _reaped(clients: dict[int, tuple[socket.socket, int]]) -> list[tuple[socket.socket, int]]:
    """The client and the status of each fork that has ended."""
    looked = ((client, *os.waitpid(fork, os.WNOHANG)) for client, fork in clients.values())
    return [(client, status) for client, fork, status in looked if fork]


def _received(client: socket.socket) -> tuple[tuple[list[str], str, dict[str, str]], list[int]] | None:
    """A request, (command line, folder, environment), and the descriptors of its standard streams; None if it is not
    a whole one of ours."""
    import marshal

    client.settimeout(PATIENCE_S)
    descriptors: list[int] = []
    try:
        if _ours(client):
            size, descriptors, _, _ = socket.recv_fds(client, 8, 3)
            with client.makefile("rb") as stream:
                request = marshal.loads(stream.read(int.from_bytes(size, "big")))
            client.settimeout(None)
            return request, descriptors
    except (OSError, ValueError, EOFError):
        for descriptor in descriptors:
            os.close(descriptor)
    return None


def _import_for(script: str) -> None:
    """Import what a script imports at its top; what goes wrong there the script itself will tell.

    Modules of ours with a function `ahead` then read what their users read anyway: a fork has it already.
    """
    import ast

    before = set(sys.modules)
    with contextlib.suppress(Exception):
        with open(script, encoding="utf-8") as text:
            module = ast.parse(text.read())
        module.body = [line for line in module.body if isinstance(line, (ast.Import, ast.ImportFrom))]
        exec(compile(module, script, "exec"), {})
        for name in [name for name in sys.modules if name.startswith("tilewise.") and name not in before]:
            getattr(sys.modules[name], "ahead", lambda: None)()


def _become(request: tuple[list[str], str, dict[str, str]], descriptors: list[int]) -> list[str]:
    """Turn this fork into what would run the command line if Python had been started for it."""
    words, folder, environment = request
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for stream, descriptor in enumerate(descriptors):
        os.dup2(descriptor, stream)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    return words


def _serve_and_run() -> None:
    """The server's process; in a fork, the script's."""
    import runpy
    from pathlib import Path

    from tilewise.files import end_with_parent

    run, descriptor = map(int, sys.argv[1:])
    end_with_parent(run)
    sys.argv[:] = serve(socket.socket(fileno=descriptor))
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    if __spec__ is None:
        main()
    else:
        _serve_and_run()
