"""Types reach the place where a client is used."""

import re
from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).resolve().parents[2]
IGNORE = "  # type: ignore[arg-type]"


@pytest.mark.slow
def test_mypy_sees_the_client_s_types_and_refuses_others(tmp_path: Path) -> None:
    lines = (ROOT / "tests/client/typed_calls.py").read_text(encoding="utf-8").splitlines()
    marked = [number for number, line in enumerate(lines, 1) if line.endswith(IGNORE)]
    bare = tmp_path / "typed_calls.py"
    bare.write_text("\n".join(line.removesuffix(IGNORE) for line in lines), encoding="utf-8")

    config = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(tmp_path / "cache")]
    report, problems, _ = api.run([*config, str(bare)])
    errors = [int(number) for number in re.findall(r"typed_calls\.py:(\d+): error: .*\[arg-type\]", report)]

    assert problems == ""
    assert errors == marked
    assert f"Found {len(marked)} errors in 1 file" in report
