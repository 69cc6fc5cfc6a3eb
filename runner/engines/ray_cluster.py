"""The connection of this process to a Ray cluster."""

import logging
import os
import socket

from runner.errors import MachineError

INSTALL = "pip install 'attnmatrix[ray]'"
CONNECT_S = 5.0


def connect(address: str) -> None:
    """Joins the cluster at `auto`, HOST:PORT or ray://HOST:PORT; MachineError with what to do where that fails."""
    what = f"--engine ray --address {address}"
    try:
        import ray
    except ImportError:
        raise MachineError(f"--engine ray: Ray is not installed here: {INSTALL}, and the same on each node") from None
    from ray._private import worker

    # It prints what becomes of nodes on standard output, where --json is; there is no option against it.
    worker.print_to_stdstream = lambda *_, **__: None
    _knock(os.environ.get("RAY_ADDRESS", "") if address == "auto" else address, what)
    if ray.is_initialized():
        return
    logging.getLogger("ray").setLevel(logging.ERROR)  # of ray:// too, where the option below is for the other side
    try:
        ray.init(address=address, namespace="attnmatrix", log_to_driver=False, logging_level=logging.ERROR)
    except ConnectionError as error:
        raise MachineError(
            f"{what}: no cluster is found from here: start one with `ray start --head`, or name the address of its "
            f"head as HOST:PORT or ray://HOST:PORT ({_gist(error)})"
        ) from error
    except (RuntimeError, ValueError, OSError, ImportError, SystemExit) as error:
        raise MachineError(
            f"{what}: cannot join the cluster: {_gist(error)}; Python and Ray must be the same version there"
        ) from error


def disconnect() -> None:
    import ray

    ray.shutdown()


def _knock(address: str, what: str) -> None:
    """Whether anything listens there; Ray itself would try for more than a minute."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not address or address == "auto":
        return
    if not (colon and host and port.isdecimal()):
        raise MachineError(f"{what}: this is no address of a cluster: write auto, HOST:PORT or ray://HOST:PORT")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_S).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise MachineError(
            f"{what}: nothing answers at {host}:{port} ({reason}): is the head of the cluster up (`ray start --head "
            "--port 6379`), and does a firewall let this machine reach it?"
        ) from error


def _gist(error: BaseException) -> str:
    """Of a message of many lines, or one with a traceback from over there, what can stand in a sentence."""
    text = str(error).strip()
    if "Traceback" in text:
        text = text.splitlines()[-1]
    return " ".join(text.split())[:300] or type(error).__name__
