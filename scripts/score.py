"""Score how continuous one task is under one encoder: every lag, mu with its interval, the value without continuity, and how mu
depends on its settings."""

from continuity import latents, stage
from continuity.metric import shuffled, task_continuity_stream
from continuity.sensitivity import sensitivity


def work(job: stage.Job) -> None:
    cfg = job.cfg
    keys = {"task": cfg["task"], "encoder": cfg["encoder"]}
    options = {name: value for name, value in cfg.items() if name not in (*keys, "sensitivity")}
    similarity = []

    def one():
        path = job.inputs["latents"]
        found = task_continuity_stream(((batch, None) for batch in latents.read(path)), **options)
        null = task_continuity_stream(
            ((shuffled(batch, seed=cfg["seed"] + k), None) for k, batch in enumerate(latents.read(path))), **options
        )
        status = {"status": found.status, "reason": found.reason or None}
        sizes = {name: cfg[name] for name in ("max_lag", "min_separation", "max_separation")}
        row = keys | sizes | status | {"mu": found.mu, "low": found.low, "high": found.high, "null_mu": null.mu}
        lags = zip(found.similarity, found.mu_t, found.n_pairs, strict=True)
        similarity.extend(
            keys | status | {"lag": lag, "similarity": s, "beta": found.beta, "mu_t": mu_t, "n_pairs": int(n)}
            for lag, (s, mu_t, n) in enumerate(lags, start=1)
        )
        return [row | {"n_sequences": found.n_sequences}], "numpy"

    job.once("score", one)
    changed = sensitivity(latents.read(job.inputs["latents"]), cfg["sensitivity"], **options)
    job.write("score_sensitivity", [keys | row for row in changed], "sensitivity")
    job.write("similarity", similarity, "similarity")


if __name__ == "__main__":
    stage.run("score", __doc__, work, ("rows", "runs", "similarity", "sensitivity"), {"latents": "the encoded task"})
