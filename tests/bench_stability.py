"""What the penalty and the certificate cost in a training step of SST at its published size for ETT (batch 32 of its 128)."""

import statistics
import time

import numpy as np
import torch
from continuity.series import Series, windows
from continuity.stability import ForecastTrainer, Plan, Variant
from continuity.training import Budget, seed_everything

BATCH, ROUNDS = 32, 5
HOW = {"supply": "unit", "output": "post", "feedthrough": True}
WAYS = {
    "no penalty": (Variant(), HOW),
    "penalty, P = I, every block": (Variant("identity", 1.0), HOW),
    "penalty, P = diag(q), every block": (Variant("diagonal", 1.0), HOW),
    "penalty, P = diag(q), 65,536 blocks": (Variant("diagonal", 1.0), HOW | {"blocks": 65536}),
    "certified layer": (Variant("certified"), HOW),
}


def main():
    """Seconds of the steps are taken in turns, so that what else runs here meets all alike."""
    torch.set_num_threads(1)
    values = np.random.default_rng(0).standard_normal((4000, 7)).cumsum(0)
    data = windows(Series("walk", values, tuple("abcdefg"), 3600.0, (2800, 3200, 4000), "made here"), 672, 96)
    budget = Budget(epochs=1, batch=BATCH, lr=1e-4, layer_lr=1e-4, weight_decay=0.0, warmup=0.1, clip=1.0)
    trainers, spent, index = {}, {}, torch.arange(BATCH)
    for name, (variant, how) in WAYS.items():
        seed_everything(0)
        plan = Plan({"name": "sst", "host": "sst"}, budget, how)
        trainers[name], spent[name] = ForecastTrainer(plan.build(data, variant), data, plan, variant, 0), []
        trainers[name].model.train()
        trainers[name]._update(*trainers[name]._feed([index]))
    for _ in range(ROUNDS):
        for name, trainer in trainers.items():
            began = time.process_time()
            trainer._update(*trainer._feed([index]))
            spent[name].append(time.process_time() - began)
    plain = spent.pop("no penalty")
    for name, found in spent.items():
        ratio = statistics.median(one / other for one, other in zip(found, plain, strict=True))
        print(f"training step of SST at ETT size, {name}: {ratio:.2f} x the step without")


if __name__ == "__main__":
    main()
