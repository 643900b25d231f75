"""Run tests on a machine that has no time: beside busy loops, in the background, with SIGINT ignored, again and again.

    python tools/stress.py                                    # the whole quick suite, once, beside 8 busy loops
    python tools/stress.py --repeat 20 -- tests/server/sandbox -k zygote

What comes after `--` goes to pytest. The exit code is 1 if any run failed; the loops end with this script.
"""

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

QUICK = ("-m", "not system and not slow", "-n", "2")
BUSY = ("-c", "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(10**6))")


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Keep the processors busy; a loop whose parent is gone ends by itself."""
    loops = [subprocess.Popen([sys.executable, *BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def run_tests(arguments: Sequence[str]) -> bool:
    """Run pytest; return whether it passed."""
    return subprocess.run([sys.executable, "-m", "pytest", "-q", *arguments], check=False).returncode == 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests as often as was asked for, and say how each run ended."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--loops", type=int, default=8, metavar="N", help="busy loops beside the tests [8]")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="how often to run the tests [1]")
    parser.add_argument("tests", nargs="*", metavar="ARGUMENT", help="for pytest [the quick suite]")
    given = parser.parse_args(arguments)
    # As a shell does it for what runs in the background; children inherit it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    passed = 0
    with busy_loops(given.loops):
        for number in range(1, given.repeat + 1):
            begun = time.monotonic()
            ok = run_tests(given.tests or QUICK)
            passed += ok
            print(
                f"run {number} of {given.repeat}: {'passed' if ok else 'FAILED'}, {time.monotonic() - begun:.0f} s",
                flush=True,
            )
    print(f"{passed} of {given.repeat} runs passed beside {given.loops} busy loops, SIGINT ignored")
    return 0 if passed == given.repeat else 1


if __name__ == "__main__":
    sys.exit(main())
