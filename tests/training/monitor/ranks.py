"""One of two processes that train with distributed data parallel. Run as a script with rank, file and folder."""

import sys
from pathlib import Path

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from regard.training import Monitor
from training import tiny
from training.monitor import looped

STEPS = 5


def run(rank: int, world: int) -> Monitor:
    """A training in which each process has every second part of a batch; the alarms are what is below a bound."""
    model = tiny.gpt(0.0)
    shared = model if world == 1 else DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = Monitor(every=2, on_alarm="record")
    for parts in looped.batches(STEPS):
        monitor.step(shared)
        for part in parts[rank::world]:
            # Parts are of one size, so that the mean of their gradients is that of the whole batch.
            (shared(**part).loss * world / looped.PARTS).backward()
        optimizer.step()
        optimizer.zero_grad()
    monitor.close()
    return monitor


if __name__ == "__main__":
    number, file, folder = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    distributed.init_process_group("gloo", init_method=f"file://{file}", rank=number, world_size=2)
    run(number, 2).history.save(folder / f"{number}.safetensors")
    distributed.destroy_process_group()
