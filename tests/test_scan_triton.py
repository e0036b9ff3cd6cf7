"""The GPU's scan: the same kernels in Triton's interpreter against the written-out recurrence, and compiled for real GPUs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
RULES = ("zoh", "bilinear", "euler", "averaged")

INTERPRETED = """
import json, sys
import torch
from continuity import scan_triton
from continuity.scan import scan_plain, triton_agrees
from test_scan import inputs

torch.set_num_threads(1)
scan_triton.CHUNK = 4  # three chunks in few steps: the interpreter is slow
found = {"agrees": triton_agrees("cpu")}
for rule in scan_triton.RULES:
    for dtype in (torch.float64, torch.float32):
        for length, channels, states in ((1, 3, 2), (4, 1, 1), (11, 5, 3)):
            torch.manual_seed(length)
            values = inputs(2, length, channels, states, dtype)
            values.append(torch.randn(2, channels, states, dtype=dtype, requires_grad=True))
            exact = [x.detach().double().requires_grad_() for x in values]
            ours = scan_triton.triton_scan(*values[:5], rule, values[5])
            true = scan_plain(*exact[:5], rule, exact[5])
            weight = torch.randn_like(true[0])
            both = []
            for (y, last), leaves in ((ours, values), (true, exact)):
                total = (y * weight).sum() + last.square().sum()
                both.append([y, last, *torch.autograd.grad(total, leaves, materialize_grads=True)])
            apart = [float((a - b).detach().abs().max() / max(1.0, float(b.detach().abs().max()))) for a, b in zip(*both)]
            found[f"{rule} {dtype} {length}"] = max(apart)
values = inputs(1, 6, 2, 2)
found["twice"] = all(
    torch.equal(*(torch.autograd.grad(scan_triton.triton_scan(*values)[0].square().sum(), values)[k] for _ in range(2)))
    for k in range(5)
)
print(json.dumps(found))
"""

COMPILED = """
import json
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from continuity import scan_triton

found = {}
for kernel in (scan_triton._forward, scan_triton._backward):
    for rule in scan_triton.RULES.values():
        fixed = {"BD": 32, "BN": 16, "CHUNK": scan_triton.CHUNK, "RULE": rule, "TERMS": scan_triton.TERMS[torch.float32]}
        kinds = {name: "constexpr" if name in fixed else "i32" if name in ("L", "D", "N", "CHUNKS", "BLOCKS") else "*fp32"
                 for name in kernel.arg_names}
        constants = {(kernel.arg_names.index(name),): value for name, value in fixed.items() if name in kernel.arg_names}
        made = triton.compile(ASTSource(kernel, kinds, constexprs=constants), target=GPUTarget("cuda", 90, 32))
        found[f"{kernel.__name__} {rule}"] = len(made.asm["cubin"])
print(json.dumps(found))
"""


def run(script, **environment):
    """What a script prints as JSON, in an interpreter of its own: Triton decides at import how it runs."""
    paths = {"PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=os.environ | paths | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.fixture(scope="module")
def interpreted():
    return run(INTERPRETED, TRITON_INTERPRET="1")


@pytest.mark.parametrize("rule", RULES)
def test_the_kernels_and_their_gradients_equal_the_plain_recurrence(interpreted, rule):
    errors = {name: value for name, value in interpreted.items() if name.startswith(rule)}
    assert len(errors) == 6
    for name, error in errors.items():
        assert error < (1e-12 if "float64" in name else 1e-5), name


def test_gradients_come_out_bit_equal_twice(interpreted):
    assert interpreted["twice"] is True


def test_the_self_check_passes_where_the_kernels_run(interpreted):
    assert interpreted["agrees"] is True


def test_the_self_check_says_why_the_plain_recurrence_runs_instead():
    """Without its interpreter Triton has no device here."""
    script = """
import json, warnings
from continuity.scan import triton_agrees
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    agrees = triton_agrees("cpu")
print(json.dumps({"agrees": agrees, "said": [str(w.message) for w in said if "Triton scan" in str(w.message)]}))
"""
    found = run(script, TRITON_INTERPRET="0")
    assert found["agrees"] is False
    assert len(found["said"]) == 1 and "the plain recurrence runs instead" in found["said"][0]


def test_every_kernel_compiles_to_machine_code_of_a_gpu():
    found = run(COMPILED, TRITON_INTERPRET="0")
    assert len(found) == 8 and min(found.values()) > 1000
