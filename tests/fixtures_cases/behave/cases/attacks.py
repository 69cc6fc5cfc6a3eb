"""What a hostile case would try, by the value of the axis `do`. Each prints `reached: ...` for what it gets at."""

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
LIBC = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def reached(what):
    """Says so, unless the block raised."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever stopped it
        print(f"refused: {what}: {type(error).__name__}")
    else:
        print(f"reached: {what}")


def called(function, *arguments):
    """A call of the C library, as an exception where it failed."""
    if getattr(LIBC, function)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), function)


def reach_the_network():
    for host, port in (("1.1.1.1", 80), ("169.254.169.254", 80), ("172.17.0.1", 2375), ("172.17.0.1", 22)):
        with reached(f"{host}:{port}"):
            socket.create_connection((host, port), timeout=2).close()
    with reached("a name server"):
        socket.getaddrinfo("example.org", 80)
    with reached("a raw socket"):
        socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    with reached("a packet socket"):
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW)


def reach_the_docker_daemon():
    for path in ("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock"):
        with reached(path), socket.socket(socket.AF_UNIX) as client:
            client.connect(path)


def reach_the_hosts_files():
    for path in ("/proc/kcore", "/dev/mem", "/dev/kmsg", "/dev/sda", "/dev/vda", "/host/etc/shadow", "/etc/shadow"):
        with reached(f"reading {path}"):
            os.close(os.open(path, os.O_RDONLY))
    for path in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/sys/fs/cgroup/release_agent", "/etc/passwd"):
        with reached(f"writing {path}"):
            Path(path).write_text("x")
    with reached("a mount"):
        called("mount", b"none", b"/tmp", b"tmpfs", 0, None)
    with reached("a device"):
        os.mknod("/tmp/device", 0o60600, os.makedev(254, 0))
    with reached("another root"):
        os.chroot("/tmp")


def see_other_processes():
    """The container's own: this one and the worker."""
    print("processes:", len([path for path in Path("/proc").iterdir() if path.name.isdecimal()]))


def gain_privileges():
    for name in ("setuid", "setgid"):
        with reached(name):
            getattr(os, name)(0)
    with reached("a user namespace with all capabilities"):
        called("unshare", 0x10000000)
        Path("/proc/self/uid_map").write_text("0 0 1")
    for place in ("/bin/su", "/usr/bin/passwd", "/bin/mount"):
        with contextlib.suppress(OSError), reached(f"root through {place}"):
            done = subprocess.run([place, "--help"], capture_output=True, timeout=5, check=False)
            raise PermissionError(done.returncode)
    with reached("time"):
        time.clock_settime(time.CLOCK_REALTIME, 0)


def fork_bomb():
    started = 0
    try:
        while started < 5000:
            os.posix_spawn("/bin/sleep", ["sleep", "600"], {})
            started += 1
    except OSError:
        pass
    print("processes started:", started)


def fill_the_disk():
    """Of /tmp, beside the folder that the cell was given."""
    written = 0
    with contextlib.suppress(OSError), Path("/tmp/hoard").open("wb") as file:
        while written < 4 << 30:
            written += file.write(b"x" * (1 << 20))
    print("bytes written:", written)


def write_outside():
    for path in ("/attnmatrix/cases/x.py", "/attnmatrix/worker.py", "/usr/bin/x", "/etc/x", "/root/x", "/x"):
        with reached(f"writing {path}"):
            Path(path).write_text("x")
    # what the worker removes after the cell: it must not follow this
    Path(os.environ["TMPDIR"], "link").symlink_to("/attnmatrix/cases")


def forge_results():
    """Speak to the host in the worker's name, through the files that the worker has open."""
    worker = os.getppid()
    words = json.dumps({"done": {"cell": "another-off-1", "duration_s": 0.0, "death": None}}) + "\n"
    for number in range(64):
        with contextlib.suppress(FileNotFoundError), reached(f"file {number} of the worker"):
            Path(f"/proc/{worker}/fd/{number}").write_text(words)
    with reached("the worker's memory"):
        os.close(os.open(f"/proc/{worker}/mem", os.O_RDWR))
    with reached("the worker by ptrace"):
        called("ptrace", 16, worker, None, None)


def break_the_words():
    """A message with all that a terminal, a page, a table and a document must not obey; longer than any limit."""
    raise AssertionError("\x1b]0;owned\x07\x1b[2J<script>alert(1)</script>|`]]>&\u202e\x00" + "A" * (1 << 20))


def result_pipe():
    """The file through which this process reports to its worker: a pipe to write to, and not its output."""
    for number in range(3, 64):
        with contextlib.suppress(OSError):
            writes = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
            if writes and str(Path(f"/proc/self/fd/{number}").readlink()).startswith("pipe:"):
                return number
    raise AssertionError("there is no pipe to the worker")


def write_into_the_result_pipe(text):
    with os.fdopen(os.dup(result_pipe()), "w") as pipe:
        pipe.write(text + "\n")


def report_this(**wrong):
    case = {"name": "test_deed", "state": "pass", "message": "", "duration_s": 0.0, "overflow": [], "resolved": {}}
    write_into_the_result_pipe(json.dumps({"case": case | wrong}))


def report_as_text(key, value):
    write_into_the_result_pipe('{"case": {"name": "test_deed", "state": "pass", "' + key + '": ' + value + "}}")


def nested(depth):
    return "[" * depth + "]" * depth


def report_nested_brackets():
    report_as_text("resolved", nested(100_000))


def report_some_nested_brackets():
    report_as_text("resolved", '{"x": ' + nested(150) + "}")


def report_an_unknown_state():
    report_this(state="splendid")


def report_a_negative_duration():
    report_this(duration_s=-1.0)


def report_a_duration_that_is_no_number():
    report_this(duration_s=float("nan"))


def report_numbers_that_swell():
    """Each is longer when it is written again."""
    report_as_text("x", "[" + "1e15," * 700_000 + "1]")


def report_a_thousand_overflows():
    batch = {"query_lens": [1], "seq_lens": [1]}
    one = {"buffer": "b", "required": 2, "allocated": 1, "how": "short", "batch": batch}
    report_this(state="overflow", overflow=[one] * 1000)


def report_another_case():
    report_this(name="test_of_nobody")


def report_without_an_end():
    for _ in range(200):
        os.write(result_pipe(), b"x" * 65536)


def plan_300000_names():
    write_into_the_result_pipe(json.dumps({"plan": [f"test_{number}" for number in range(300_000)]}))


def know_nested_brackets(request):
    inner = []
    for _ in range(50_000):
        inner = [inner]
    request.node.attnmatrix = {"state": "pass", "resolved": {"x": inner}}


def know_nonsense(request):
    request.node.attnmatrix = {"state": "pass", "overflow": 7, "resolved": ["x"]}


def dig_deep():
    """A folder in a folder, further down than Python's own stack."""
    os.chdir(os.environ["TMPDIR"])
    for _ in range(3000):
        Path("down").mkdir()
        os.chdir("down")
    os.chdir("/")


def send_every_signal_to_the_worker():
    for number in sorted(signal.valid_signals()):
        with contextlib.suppress(PermissionError):
            os.kill(os.getppid(), number)
    time.sleep(0.2)


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def descendants(pid):
    found = []
    for path in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if path.name.isdecimal() and parent(path.name) == pid:
                found += [int(path.name), *descendants(int(path.name))]
    return found


def reach(others):
    for pid in others:
        for number in range(64):
            with contextlib.suppress(FileNotFoundError), reached(f"file {number} of process {pid}"):
                os.close(os.open(f"/proc/{pid}/fd/{number}", os.O_WRONLY | os.O_NONBLOCK))
        with contextlib.suppress(FileNotFoundError), reached(f"the memory of process {pid}"):
            os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR))
        with reached(f"process {pid} by a signal"):
            os.kill(pid, 0)


def flag(runner):
    return Path(f"/tmp/attnmatrix-reached-{runner}")


def wait_to_be_reached():
    until = time.monotonic() + 60
    while not flag(parent(os.getppid())).exists() and time.monotonic() < until:
        time.sleep(0.1)


def reach_another_cell():
    """As below, once there are another worker and its cell."""
    runner, until = parent(os.getppid()), time.monotonic() + 60
    while len(descendants(runner)) < 4 and time.monotonic() < until:
        time.sleep(0.1)
    reach_other_processes()
    flag(runner).touch()


def reach_other_processes():
    """The worker, the runner, and all others that the runner has started; from here, and from a stray."""
    worker = os.getppid()
    runner = parent(worker)
    mine = {os.getpid(), *descendants(os.getpid())}
    others = [runner, *(pid for pid in descendants(runner) if pid not in mine)]
    print("others:", len(others), flush=True)
    reach(others)
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import attacks; attacks.reach({others})"
    subprocess.run([sys.executable, "-c", code], start_new_session=True, check=True)
