"""Encode the test sequences of one task by one encoder."""

from continuity import latents, stage, tasks
from continuity.benchmark import ends
from continuity.models import build_model
from continuity.training import load, one_thread, seed_everything


def encoder(job: stage.Job, task: tasks.Task):
    cfg = job.cfg
    if cfg["encoder"] == "raw":
        return latents.raw(task)
    if cfg["encoder"] == "random":
        seed_everything(cfg["seed"])
        return latents.embedding(build_model(cfg["model"], cfg["network"], **ends(task)))
    _, at, depth = cfg["encoder"].partition("@")
    model = build_model(cfg["model"], cfg["network"], **ends(task))
    model.load_state_dict(load(job.listed[0]))
    return latents.states(model, int(depth)) if at else latents.embedding(model)


def work(job: stage.Job) -> None:
    one_thread()
    task = tasks.read(job.inputs["sequences"], "test", job.cfg["sequences"])
    latents.write(task, "test", job.cfg["sequences"], encoder(job, task), job.outputs["latents"], job.identity)


if __name__ == "__main__":
    stage.run("latents", __doc__, work, ("latents",), {"sequences": "the task"})
