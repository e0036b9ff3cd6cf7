"""What an update costs in a coarse stage: its time over that at every step, beside its share of the steps."""

import statistics

import torch
from continuity.curriculum import StagedTrainer
from continuity.network import SequenceModel
from continuity.stages import Plan
from continuity.training import Budget, Data, clock

LENGTH, BATCH, WIDTH, REPEATS = 1024, 16, 64, 5
STRIDES = (8, 4, 2, 1)
NOTHING = 512
"""A stride that leaves two steps: what an update costs whatever the length."""
BUDGET = Budget(epochs=len(STRIDES) + 1, batch=BATCH, lr=0.01, layer_lr=0.001, weight_decay=0.01, warmup=0.1, clip=1.0)


def seconds(layer: str) -> dict[int, float]:
    """Seconds of one update at each stride, the median of REPEATS."""
    torch.manual_seed(0)
    model = SequenceModel(layer, d_input=1, d_model=WIDTH, n_layers=2, d_output=10)
    data = Data(torch.randn(BATCH, LENGTH, 1), torch.randint(10, (BATCH,)))
    trainer = StagedTrainer(Plan([NOTHING, *STRIDES]), model, data, data, BUDGET, 0)
    found = {}
    for stage in trainer.plan.stages(BUDGET.epochs):
        trainer.enter(stage)
        trainer._update(*trainer._feed([torch.arange(BATCH)]))
        times = []
        for _ in range(REPEATS):
            began = clock("cpu")
            trainer._update(*trainer._feed([torch.arange(BATCH)]))
            times.append(clock("cpu") - began)
        found[stage.stride] = statistics.median(times)
    return found


def main() -> None:
    torch.set_num_threads(1)
    for layer in ("s4d", "s6"):
        found = seconds(layer)
        whole, fixed = found[1], found[NOTHING]
        print(f"{layer}: overhead {fixed / whole:.3f} x of an update at every step")
        for stride in STRIDES[:-1]:
            share = (found[stride] - fixed) / (whole - fixed)
            print(f"{layer} stride {stride}: {found[stride] / whole:.3f} x, {share * stride:.2f} x its share less the overhead")


if __name__ == "__main__":
    main()
