"""What each of two processes does: ``python distributed_worker.py RANK PORT KIND``; prints the largest difference."""

from __future__ import annotations

import copy
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def main(rank: int, port: str, kind: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK=str(rank), WORLD_SIZE="2")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))
    twin = copy.deepcopy(model)
    inputs = torch.randn(2, 32, 16)
    if kind == "ddp":
        run = torch.compile(DistributedDataParallel(model), backend="spyre_fx")
    else:
        fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
        run = torch.compile(model, backend="spyre_fx")
    for module, step, x in ((model, run, inputs[rank]), (twin, twin, inputs.flatten(0, 1))):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            step(x).square().mean().backward()
            optimizer.step()
    whole = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    difference = max((a - b).abs().max().item() for a, b in zip(whole, twin.parameters(), strict=True))
    print(f"DIFFERENCE {difference:.3e}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
