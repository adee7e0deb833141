"""A line on the terminal that says what a long step is about."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

PATIENCE = 1.0
"""Seconds that pass in silence."""


@contextmanager
def progress(text: str, stream: TextIO | None = None) -> Iterator[None]:
    """While the block runs longer than a second, show ``text`` and the seconds so far; then take the line away.

    Nothing is written where ``stream`` (``sys.stderr`` by default) is no terminal.
    """
    stream = stream or sys.stderr
    if not stream.isatty():
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_show, args=(text, stream, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _show(text: str, stream: TextIO, done: threading.Event) -> None:
    start = time.perf_counter()
    line = ""
    while not done.wait(PATIENCE):
        line = f"spyre_fx: {text} ({time.perf_counter() - start:.0f} s)"
        stream.write(f"\r{line}")
        stream.flush()
    if line:
        stream.write("\r" + " " * len(line) + "\r")
        stream.flush()
