"""Secrets in variables, settings, files and tokens, and ten thousand errors: none of them comes out anywhere."""

from __future__ import annotations

import json
import re
import secrets
from base64 import b64encode
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.system.attacks.arena import IN_FILE, IN_VARIABLE, arena
from tests.system.attacks.forcing import Forcing

pytestmark = pytest.mark.system
LEAKY = "tests.system.attacks.leaky:Leaky"
ODD = "q\"u'o\\te %d/é&+"
"""What has to be quoted in JSON, in Python and in an address."""
WORD = re.compile(rb"[A-Za-z0-9_+/=-]{12,}")


def secret(kind: str) -> str:
    """Return a text that is nowhere else."""
    return f"{kind}{secrets.token_hex(16)}"


def config(known: dict[str, Any]) -> str:
    """Return the settings as a TOML file says them; JSON's texts are TOML's."""
    api_key, password = json.dumps(known["api_key"]), json.dumps(known["password"])
    token, credential = json.dumps(known["token"]), json.dumps(known["credential"])
    return (
        "step_timeout_seconds = 20.0\n"
        f"[settings]\napi_key = {api_key}\nlevel = 3\n[settings.database]\npassword = {password}\nhost = 'db.example'\n"
        f"[[settings.accounts]]\ntoken = {token}\ndeep = {{ credential = {credential} }}\n"
    )


def forms(canary: str) -> set[bytes]:
    """Return what a canary looks like in a text: its end, each half of that, and all of it in other letters.

    Its end has no sign that is ever quoted.
    """
    end = canary[-32:]
    whole = canary.encode()
    encoded = {end.encode().hex(), whole.hex(), b64encode(whole).decode().rstrip("=")[:-1], whole.hex().upper()}
    return {text.encode() for text in {end, end[:16], end[16:], *encoded}}


def leaks(canaries: list[str], text: bytes) -> list[str]:
    """Return where a canary is found in some bytes, with what stands around it."""
    # Most of a long text is said again and again.
    words = b"\n".join(set(WORD.findall(text)))
    found = [(canary, form) for canary in canaries for form in forms(canary) if form in words]
    return [f"{form!r} of {canary!r} in {_around(text, form)!r}" for canary, form in found]


def _around(text: bytes, form: bytes) -> bytes:
    place = text.find(form)
    return text[max(0, place - 200) : place + 100]


# The longer run has a log for programs, the shorter one a log for people.
@pytest.mark.parametrize(("plain", "share"), [(False, 1.0), (True, 0.1)], ids=["json", "plain"])
def test_no_secret_comes_out_of_ten_thousand_errors(tmp_path: Path, plain: bool, share: float) -> None:
    known = {name: secret(name) for name in ("api_key", "token", "credential")} | {"password": ODD + secret("")}
    in_variable, control = secret("variable"), secret("control")
    token_file = tmp_path / "token"
    token_file.write_text(control)
    token_file.chmod(0o600)
    more = {"SERVER_API_KEY": in_variable, "AWS_SECRET_ACCESS_KEY": in_variable}
    with arena(
        tmp_path / "home",
        LEAKY,
        "--token-file",
        str(token_file),
        config=config(known),
        more=more,
        secret=control,
        plain=plain,
    ) as served:
        forcing = Forcing(served, Random(7))
        canaries = [*known.values(), in_variable, control]
        done = {
            "messages": forcing.messages(int(6_000 * share)),
            "doors": forcing.at_the_doors(int(2_500 * share), [*canaries, *forcing.handed_out]),
            "calls": forcing.calls(int(1_300 * share)),
            "steps": forcing.in_steps(int(150 * share)),
            "tools": forcing.in_calls(int(60 * share)),
            "hang-ups": forcing.hang_ups(int(50 * share)),
        }
        assert served.alive

    canaries += [*forcing.handed_out, IN_VARIABLE, IN_FILE]
    assert sum(done.values()) >= 10_000 * share, done
    said = {
        "replies": bytes(forcing.heard),
        "log": served.log.text(),
        "output": served.command.out.encode(),
        "record": served.record.text(),
    }
    assert [f"{place}: {leak}" for place, text in said.items() for leak in leaks(canaries, text)] == []
    assert b"incident" in served.log.text()
