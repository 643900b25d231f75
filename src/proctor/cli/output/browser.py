"""A browser that is opened at an address that holds a code.

Rule 1: the code is in no command line, which others on the machine can read: the browser is given a file that leads to the
    address, which only its owner can read and which is removed when there was time to read it.
Rule 2: it is opened on a thread: some browsers end before the call does, and nobody else waits for that.
"""

import atexit
import os
import tempfile
import threading
import webbrowser
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Final

KEPT_SECONDS: Final = 10.0
"""How long the file is there after the browser was asked to open it."""
PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Proctor</title>
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={address}"></head>
<body><p><a href="{address}">To the pages</a></p></body></html>
"""


def open_in_browser(address: str) -> threading.Thread:
    """Open a browser at an address; the thread that is returned ends when nothing of it is left."""
    file = _write_redirect_page(PAGE.format(address=escape(address)))
    # A program that ends before the thread does takes the file with it.
    atexit.register(file.unlink, missing_ok=True)
    thread = threading.Thread(target=_open_file, args=(file,), name="browser", daemon=True)
    thread.start()
    return thread


def _write_redirect_page(page: str) -> Path:
    descriptor, name = tempfile.mkstemp(prefix="proctor-", suffix=".html")  # for its owner only
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(page)
    return Path(name)


def _open_file(file: Path) -> None:
    try:
        # No browser is no error: the address was printed, too.
        with suppress(webbrowser.Error, OSError):
            webbrowser.open(file.as_uri())
        threading.Event().wait(KEPT_SECONDS)
    finally:
        file.unlink(missing_ok=True)
