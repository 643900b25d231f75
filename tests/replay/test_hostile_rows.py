"""Whatever one row of a stranger's file says, no command takes much more memory than the row has bytes."""

import sqlite3
import subprocess
import sys
import zlib
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from proctor.ledger.reader import Ledger
from proctor.models.events import encode_event
from tests.ledger.hostile import MIB
from tests.replay.recorded_ledgers import PLUME, Play, Sitting, record

MEASURED = """
import sys
from pathlib import Path
from proctor.cli.main import main
command = sys.argv[2:]
for path in sorted(Path(sys.argv[1]).glob("*/worker-0.ledger")):
    main([str(path) if each == "LEDGER" else each for each in command])
(most,) = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(int(most) // 1024, file=sys.stderr)
"""
"""Runs a command on many ledgers, and prints how many mebibytes that took at most."""
MOST = 600
"""Mebibytes: building the lists of one such row takes twice as many."""
LISTS = Raw(b'{"x":[%b[]]}' % (b"[]," * (40 * MIB // 3)))
ZEROS = b64encode(zlib.compress(bytes(2**28), 9))
ARRAY = b'{"dtype":"|b1","shape":[268435456],"zip":"zlib","data":"%b"}' % ZEROS
ARRAYS = Raw(b'{"x":[%b]}' % b",".join([ARRAY] * 4))
"""Four arrays, each of which says a quarter of a gigabyte."""

SINGLE = [(1, "options"), (1, "metadata"), (1, "observation"), (2, "action"), (2, "metadata"), (2, "observation")]
BATCH = [
    *((1, field) for field in ("options", "mask", "infos", "observations")),
    *((2, field) for field in ("actions", "infos", "observations", "raw_rewards", "rewards", "terminations")),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of ledgers, in each of which one field of one row says very much."""
    folder = tmp_path_factory.mktemp("hostile")
    one, many = (Sitting(PLUME, plays=[Play(seed=None, steps=2)], num_envs=each) for each in (None, 2))
    for seq, field in SINGLE:
        _write(folder / f"single-{seq}-{field}", one, seq, field, LISTS)
    for seq, field in BATCH:
        _write(folder / f"batch-{seq}-{field}", many, seq, field, LISTS)
        _write(folder / f"packed-{seq}-{field}", many, seq, field, ARRAYS if field == "infos" else Raw(ARRAY))
    return folder


def _write(folder: Path, sitting: Sitting, seq: int, field: str, value: Raw) -> None:
    record(folder, sitting)
    with Ledger.open(folder) as ledger:
        row = list(ledger.rows("boot0.1"))[seq]
    event: Any = row.event
    body = b'{"digest":"%b","event":%b}' % ((row.digest or "").encode(), encode_event(replace(event, **{field: value})))
    connection = sqlite3.connect(folder / "worker-0.ledger", isolation_level=None)
    connection.execute("UPDATE rows SET body = ? WHERE number = ?", (body, row.number))
    connection.close()


COMMANDS = {
    "list": "ledger list LEDGER",
    "show": "ledger show LEDGER boot0.1",
    "show --json": "ledger show LEDGER boot0.1 --json",
    "verify": "ledger verify LEDGER",
    "export": "ledger export LEDGER boot0.1",
    "export otel": "ledger export LEDGER boot0.1 --format otel",
    "replay": "replay LEDGER boot0.1",
    "replay --alone": "replay LEDGER boot0.1 --alone",
    "replay --at": "replay LEDGER boot0.1 --at 2",
    "replay --fork": "replay LEDGER boot0.1 --fork 1 --actions [1]",
    "replay --fork of a batch": "replay LEDGER boot0.1 --fork 1 --actions [[1,1]]",
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_what_one_row_says_takes_little_memory(folder: Path, command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(folder), *command.split()],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=True,
        timeout=600,
    )

    assert int(done.stderr.splitlines()[-1]) < MOST
