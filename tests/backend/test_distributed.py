"""Training in two processes: the parameters are those of one process that sees all inputs."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist

WORKER = Path(__file__).parent / "distributed_worker.py"


def free_port() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


@pytest.mark.slow
@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="torch without gloo")
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_two_processes_train_as_one(kind: str) -> None:
    port = free_port()
    commands = [[sys.executable, str(WORKER), str(rank), port, kind] for rank in range(2)]
    workers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for command in commands
    ]
    try:
        for worker in workers:
            out, errors = worker.communicate(timeout=240)
            assert worker.returncode == 0, errors
            assert float(out.split("DIFFERENCE")[1]) < 1e-5
            assert "not tiled (" not in errors
    finally:
        for worker in workers:
            worker.kill()
