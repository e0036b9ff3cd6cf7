"""Compiled loops stay out of torch's compiler, and nobody waits for its import who does not compile."""

import subprocess
import sys

import torch
from continuity.uncompiled import uncompiled


def test_compiled_code_calls_it_as_it_is():
    seen = []

    @uncompiled
    def double(x):
        seen.append(torch.compiler.is_compiling())
        return 2 * x

    def outer(x):
        return torch.sin(double(torch.cos(x))) + 1

    x = torch.arange(4.0, requires_grad=True)
    expected = torch.autograd.grad(outer(x).sum(), x)[0]
    compiled = torch.compile(outer, backend="eager")
    for _ in range(2):
        assert torch.equal(compiled(x), outer(x))
    assert torch.equal(torch.autograd.grad(compiled(x).sum(), x)[0], expected)
    assert seen and not any(seen)
    torch._dynamo.reset()


def test_training_every_layer_leaves_torchs_compiler_alone():
    code = """
import sys
import torch
from continuity.layers import LAYERS
from continuity.models import build_model
from continuity.training import Budget, Data, Trainer, rmse

budget = Budget(epochs=1, batch=4, lr=1e-3, layer_lr=1e-3, weight_decay=0.01, warmup=0.0, clip=1.0)
data = Data(torch.randn(8, 12, 2), torch.randn(8, 1))
for layer in LAYERS:
    model = build_model({"name": layer, "layer": layer}, {"d_model": 8, "n_layers": 1}, d_input=2, d_output=1)
    assert Trainer(model, data, data, budget, 0, torch.nn.functional.mse_loss, rmse).fit().status == "ok", layer
    assert "torch._dynamo" not in sys.modules, layer
"""
    subprocess.run([sys.executable, "-c", code], check=True)
