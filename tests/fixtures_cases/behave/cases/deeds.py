"""What a cell can do to its worker and its machine, by the value of the axis `do`."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def nothing():
    pass


def print_a_word():
    print("a word on standard output")
    os.system("echo a word from a grandchild >&2")


def print_100_mb():
    os.write(1, b"first words\n")
    line = b"x" * 99_999 + b"\n"
    for _ in range(1000):
        os.write(1, line)
    os.write(1, b"last words\n")


def print_nonsense():
    os.write(1, b'\xff\x00\x1b[31mred\x1b[0m\xe2\x80\xae\n{"done": {}}\n')


def assert_something_false():
    assert [1, 2, 3] == [1, 2, 4]


def segfault():
    ctypes.string_at(0)


def meet_an_illegal_instruction():
    os.kill(os.getpid(), signal.SIGILL)


def kill_itself():
    os.kill(os.getpid(), signal.SIGKILL)


def interrupt_itself():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)


def abort():
    os.abort()


def exit_0():
    os._exit(0)


def exit_3():
    os._exit(3)


def sleep():
    time.sleep(600)


def sleep_a_second():
    time.sleep(1)


def sleep_with_a_grandchild():
    subprocess.Popen(SLEEP, start_new_session=True)
    time.sleep(600)


def ignore_signals_and_spin():
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    while True:
        pass


def say_something_for_two_seconds():
    for _ in range(20):
        print("still here", flush=True)
        time.sleep(0.1)


def leave_a_grandchild():
    subprocess.Popen(SLEEP, start_new_session=True)


def kill_the_worker():
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)


def kill_it_with_a_grandchild():
    subprocess.Popen(SLEEP, start_new_session=True)
    kill_the_worker()


def stop_the_worker():
    os.kill(os.getppid(), signal.SIGSTOP)
    time.sleep(600)


def eat_memory():
    hoard = []
    while True:
        hoard.append(b"x" * 16 * 1024 * 1024)


def leave_a_mark():
    import marks

    marks.seen.append(os.getpid())
    Path(os.environ["TMPDIR"], "mark").write_text("seen")
    assert marks.seen == [os.getpid()]


def look_for_a_mark():
    import marks

    assert marks.seen == []
    assert not list(Path(os.environ["TMPDIR"]).iterdir())


def write_30_mb():
    Path("/tmp/result").write_bytes(b"x" * (30 << 20))


def print_the_environment():
    for name, value in os.environ.items():
        print(f"{name}={value}")


def print_the_surroundings():
    """What the sandbox test reads: facts, judged by the test."""
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    print("uid", os.getuid())
    print("capabilities", status["CapEff"], status["CapBnd"])
    print("no_new_privileges", status["NoNewPrivs"])
    print("interfaces", *sorted(path.name for path in Path("/sys/class/net").iterdir()))
    for path in ("/", "/attnmatrix", "/attnmatrix/cases", "/usr", "/tmp"):
        print("writable" if writable(path) else "locked", path)
    for path in ("/var/run/docker.sock", "/run/docker.sock"):
        print("socket" if Path(path).exists() else "no_socket", path)
    for line in Path("/proc/mounts").read_text().splitlines():
        print("mount", *line.split()[:4])


def writable(path):
    try:
        Path(path, "probe").write_text("x")
        Path(path, "probe").unlink()
    except OSError:
        return False
    return True
