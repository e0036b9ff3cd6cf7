"""The published experiment against a loop of one system, scale and step at a time. Prints `name: ratio x`.

Both sides step S4 and S6 by zero-order hold and bilinear at the nine published steps and compare with a reference. The
loop is timed on two systems at two scales, on which ours must give the same errors to 1e-9, and scaled up to all 20 by
11; its reference is scipy's DOP853 at rtol 1e-12, its inputs are evaluated once a step size. All are processor times.
"""

import time

import numpy as np
import torch
from continuity import convergence
from continuity.random_systems import SYSTEMS, Cases
from scipy.integrate import solve_ivp
from scipy.linalg import expm

MODELS, METHODS, SCALES, SYSTEMS_TIMED = ("s4", "s6"), ("zoh", "bilinear"), (1.0, 32.0), 2


def loop(system, taus):
    """rel_linf by (method, tau) of a system of one case: one step at a time, a matrix exponential each."""
    a, eye = system.A[0], np.eye(system.A.shape[-1])
    times = np.arange(round(1 / taus[0]) + 1) * taus[0]

    def inputs(t):
        u = system.signal(t)
        gate, readout = system.gate(u)[0], system.readout(u)[0, :, 0]
        return np.broadcast_to(gate, len(t)), system.drive(u)[0], np.broadcast_to(readout, (len(t), len(a)))

    def slope(t, x):
        gate, drive, _ = inputs(np.array([t]))
        return gate[0] * (a @ x + drive[0])

    states = solve_ivp(slope, (0, 1), np.zeros(len(a)), "DOP853", rtol=1e-12, atol=1e-15, t_eval=times).y.T
    errors = {}
    for tau in taus:
        stride = round(tau / taus[0])
        exact, samples = states[::stride], list(zip(*inputs(times[::stride]), strict=True))
        for method in METHODS:
            x, worst, largest = np.zeros(len(a)), 0.0, 0.0
            for truth, (gate, drive, readout) in zip(exact, samples, strict=True):
                worst, largest = max(worst, abs(readout @ (x - truth))), max(largest, abs(readout @ truth))
                d = gate * tau
                if method == "zoh":
                    step = expm(d * a)
                    x = step @ x + np.linalg.solve(a, (step - eye) @ drive)
                else:
                    x = np.linalg.solve(eye - d * a / 2, (eye + d * a / 2) @ x + d * drive)
            errors[method, tau] = worst / largest
    return errors


def main():
    torch.set_num_threads(1)
    taus = convergence.TAUS
    start = time.process_time()
    table = convergence.run(models=MODELS, methods=METHODS).to_pylist()
    ours = time.process_time() - start
    found = {(r["model"], r["method"], r["scale"], r["draw"], r["tau"]): r["rel_linf"] for r in table}
    difference, start = 0.0, time.process_time()
    for name in MODELS:
        system = SYSTEMS[name](Cases.random(SYSTEMS_TIMED, SCALES))
        for case in range(SYSTEMS_TIMED * len(SCALES)):
            scale, draw = SCALES[case // SYSTEMS_TIMED], case % SYSTEMS_TIMED
            for (method, tau), error in loop(system.take(np.array([case])), taus).items():
                difference = max(difference, abs(error - found[name, method, scale, draw, tau]))
    whole = (time.process_time() - start) * 20 * 11 / (SYSTEMS_TIMED * len(SCALES))
    assert difference < 1e-9, difference
    print(f"convergence experiment against a loop: {whole / ours:.1f} x ({ours:.1f} s; values within {difference:.1e})")


if __name__ == "__main__":
    main()
