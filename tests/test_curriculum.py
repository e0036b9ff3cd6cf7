"""Coarse-to-fine training: what a stage sees, when it ends, its learning rate, resume, and time to an accuracy from known times."""

import importlib.util
import itertools
import json
import math

import numpy as np
import pytest
import torch
from continuity import benchmark, catalog, curriculum, stages, tables, training
from continuity import stage as frame
from continuity.curriculum import Prediction, StagedTrainer, automatic, has_time_scale, hold_error, hold_error_of, seen
from continuity.layers import LAYERS
from continuity.models import build_model
from continuity.network import SequenceModel
from continuity.problems import Problem
from continuity.stages import Plan, Stage
from continuity.student import quantile_975
from continuity.study import SCRIPTS
from continuity.tasks import Sequences, Task, write
from continuity.training import Budget, Data, Trainer
from torch.nn.functional import cross_entropy

BUDGET = Budget(epochs=4, batch=8, lr=0.01, layer_lr=0.005, weight_decay=0.01, warmup=0.1, clip=1.0)
MODEL = {"name": "s4d", "layer": "s4d", "options": {"d_state": 4}}
NETWORK = {"d_model": 8, "n_layers": 1, "dropout": 0.2}


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def tones(n, length=48, seed=0, ragged=False, span=48):
    """Sines of 1.5, 2.7 or 4.9 periods in `span` steps and any phase; the class is the frequency."""
    rng = np.random.default_rng(seed)
    label = rng.integers(3, size=n)
    phase = rng.uniform(0, 2 * np.pi, (n, 1))
    wave = np.sin(2 * np.pi * (1.5 * 1.8 ** label[:, None]) * np.arange(length) / span + phase)
    lengths = torch.from_numpy(rng.integers(length // 2, length + 1, n)) if ragged else None
    return Data(torch.from_numpy(wave).float().unsqueeze(-1), torch.from_numpy(label), lengths)


def network(layer="s4d", dropout=0.2, seed=3, **options):
    training.seed_everything(seed)
    ends = {"d_output": 3} | ({} if "vocab" in options else {"d_input": 1})
    return SequenceModel(layer, d_model=8, n_layers=2, dropout=dropout, **options, **ends)


def staged(plan, model, checkpoint=None, budget=BUDGET, train=None, **options):
    return StagedTrainer(plan, model, train or tones(28), tones(20, seed=1), budget, 3, checkpoint, **options)


def same(one, two):
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True))


def task(n=(40, 16, 24), length=48):
    """A labelled task of tones; validation and test are the same sequences."""
    parts = {
        split: tones(count, length, seed=seed)
        for split, count, seed in zip(("train", "test"), (n[0], n[2]), (0, 1), strict=True)
    }
    parts["validation"] = parts["test"]
    splits = {
        split: Sequences(data.x.reshape(-1, 1).numpy(), np.full(len(data), length, np.int32), data.y.numpy().astype(np.int32))
        for split, data in parts.items()
    }
    return Task("tones", splits, "made here", "none", ("low", "middle", "high"), channels=("wave",))


def started(name, argv, outputs):
    """Run a stage's script in this process."""
    spec = importlib.util.spec_from_file_location(f"{name}_script", SCRIPTS / f"{name}.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    frame.run(name, "", script.work, outputs, argv=argv)


# ---------------------------------------------------------------- plans


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"strides": [2, 4, 1]}, "grow from 2 to 4"),
        ({"strides": [4, 2]}, "end in 2"),
        ({"strides": []}, "positive whole numbers"),
        ({"strides": [2.5, 1]}, "positive whole numbers"),
        ({"strides": [4, 1], "shares": [0.5, 0.4]}, "they sum to 0.9"),
        ({"strides": [4, 1], "shares": [1.5, -0.5]}, "must be positive"),
        ({"strides": [4, 1], "shares": [1.0]}, "one a stage: there are 2 strides"),
        ({"strides": [4, 1], "epochs": [3, 0]}, "positive whole numbers"),
        ({"strides": [4, 1], "epochs": [3, 1], "shares": [0.5, 0.5]}, "not both"),
        ({"strides": [4, 1], "reduce": "mean"}, "choose one of index, pool"),
        ({"strides": [4, 1], "patience": 2}, "set restart to false"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_in_one_line(options, says):
    with pytest.raises(ValueError, match=says) as caught:
        Plan(**options)
    assert "\n" not in str(caught.value)


def test_a_stage_without_an_epoch_and_a_stride_longer_than_a_sequence_are_refused():
    with pytest.raises(ValueError, match="without one"):
        Plan([8, 4, 1]).counts(2)
    Plan([8, 1]).check_lengths(8)
    with pytest.raises(ValueError, match="stride 8 is longer than the shortest sequence, 7 steps"):
        Plan([8, 1]).check_lengths(7)


@pytest.mark.parametrize(
    ("epochs", "n", "published"), [(200, 4, (50,) * 4), (40, 3, (14, 13, 13)), (50, 3, (17, 17, 16)), (80, 3, (27, 27, 26))]
)
def test_epochs_divide_as_published_the_remainder_to_the_first_stages(epochs, n, published):
    assert Plan([1] * n).counts(epochs) == published


def test_shares_divide_the_epochs_by_the_largest_fraction():
    assert Plan([4, 1], shares=[0.7, 0.3]).counts(10) == (7, 3)
    assert Plan([4, 2, 1], shares=[0.5, 0.26, 0.24]).counts(7) == (3, 2, 2)
    assert Plan([4, 1], epochs=[5, 2]).total(99) == 7


def test_the_learning_rate_at_the_first_step_of_each_stage_is_that_of_the_plan():
    restart, on = Plan([4, 2, 1]), Plan([4, 2, 1], restart=False)
    first = [stage.start * 10 for stage in restart.stages(6)]
    assert first == [0, 20, 40]
    assert [restart.rate(step, 6, 10, 0.1) for step in first] == [pytest.approx(1 / 7), 1.0, 1.0]
    assert [on.rate(step, 6, 10, 0.1) for step in first] == [training.rate(step, 60, 0.1) for step in first]
    assert restart.rate(19, 6, 10, 0.1) < 0.05 and restart.rate(60, 6, 10, 0.1) == pytest.approx(0)
    halfway = restart.rate(30, 6, 10, 0.1)
    assert halfway == pytest.approx(0.5)


def test_the_trainer_starts_every_stage_at_the_learning_rate_of_the_plan(monkeypatch):
    plan, seen_rates, update = Plan([4, 2, 1]), [], Trainer._update

    def watching(self, batch):
        out = update(self, batch)
        seen_rates.append([group["lr"] / peak for group, peak in zip(self.optimizer.param_groups, self.peaks, strict=True)])
        return out

    monkeypatch.setattr(Trainer, "_update", watching)
    trainer = staged(plan, network(), budget=training.Budget(**vars(BUDGET) | {"epochs": 6}))
    outcome = trainer.fit()
    for start in (0, 2, 4):
        step = start * trainer.steps_per_epoch
        assert seen_rates[step] == pytest.approx([plan.rate(step, 6, trainer.steps_per_epoch, 0.1)] * len(trainer.peaks))
        assert outcome.history[start]["lr"] == pytest.approx(BUDGET.lr * seen_rates[step][0])
    assert seen_rates[2 * trainer.steps_per_epoch][0] == 1.0


@pytest.mark.parametrize("restart", [True, False])
def test_one_stage_has_the_learning_rate_of_plain_training(restart):
    plan = Plan([1], restart=restart)
    assert [plan.rate(step, 5, 7, 0.2) for step in range(35)] == [training.rate(step, 35, 0.2) for step in range(35)]


def test_a_stage_ends_when_its_loss_stops_improving_and_the_last_stage_gets_the_epochs_left():
    plan = Plan([4, 2, 1], epochs=[6, 4, 2], restart=False, patience=2, improvement=0.1)
    assert plan.counts(12) == (6, 4, 2)
    assert plan.counts(12, [3.0, 2.0, 1.0, 0.5]) == (6, 4, 2)
    # Two epochs within 10 % of the best before them end the first stage after its fourth epoch.
    assert plan.counts(12, [3.0, 1.0, 0.95, 0.96]) == (4, 4, 4)
    assert plan.counts(12, [3.0, 1.0, 0.95, 0.96, 0.9, 0.89, 0.88]) == (4, 3, 5)
    assert plan.stage(4, 12, [3.0, 1.0, 0.95, 0.96]).stride == 2


# ---------------------------------------------------------------- what a stage sees


def windows(sequence, stride):
    """The reference: one sequence, one window after another."""
    return [sequence[start : start + stride] for start in range(0, len(sequence), stride)]


@pytest.mark.parametrize("stride", [2, 3, 7, 20])
@pytest.mark.parametrize("reduction", ["index", "pool"])
@pytest.mark.parametrize("channels", [(), (3,)])
def test_thinning_equals_the_reference_on_ragged_batches(stride, reduction, channels):
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor([20, 1, 7, 13, 19])
    x = torch.randn(5, 20, *channels, generator=generator)
    for filler in (float("nan"), 1e30):
        for row, length in zip(x, lengths, strict=True):
            row[length:] = filler
        coarse, short = Stage(0, stride, 0, 1, reduction).reduce(x, lengths)
        assert coarse.shape[1] == math.ceil(20 / stride)
        for row, length, found, n in zip(x, lengths, coarse, short, strict=True):
            parts = windows(row[:length], stride)
            wanted = [part[0] if reduction == "index" else part.mean(0) for part in parts]
            assert int(n) == len(parts)
            torch.testing.assert_close(found[:n], torch.stack(wanted))


def test_thinning_without_lengths_keeps_the_last_shorter_window():
    x = torch.arange(7.0).reshape(1, 7, 1)
    coarse, lengths = Stage(0, 3, 0, 1, "pool").reduce(x)
    assert coarse.flatten().tolist() == [1.0, 4.0, 6.0] and lengths is None


def test_tokens_are_pooled_behind_the_embedding():
    model = network(vocab=11, dropout=0.0).eval()
    generator = torch.Generator().manual_seed(0)
    tokens, lengths = torch.randint(1, 11, (4, 17), generator=generator), torch.tensor([17, 5, 12, 9])
    data = Data(tokens, torch.zeros(4, dtype=torch.long), lengths)
    outputs = seen(model, data, Stage(0, 4, 0, 1, "pool"))
    for row, length, found in zip(tokens, lengths, outputs, strict=True):
        means = torch.stack([model.encoder(part).mean(0) for part in windows(row[:length], 4)])[None]
        h = means
        for block in model.blocks:
            h = block(h, 4.0, None)
        torch.testing.assert_close(found, model.decoder(h.mean(1))[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="behind the embedding"):
        stages.pool(tokens, 4)


@pytest.mark.parametrize("reduction", ["index", "pool"])
@pytest.mark.parametrize("stride", [1, 2, 5])
@pytest.mark.parametrize("layer", LAYERS)
def test_a_sequence_alone_and_in_a_ragged_batch_agree_at_every_stride(layer, stride, reduction):
    model, data, stage = network(layer, dropout=0.0), tones(5, 40, ragged=True), Stage(0, stride, 0, 1, reduction)
    together = seen(model, data, stage)
    for i, length in enumerate(data.lengths):
        alone = seen(model, Data(data.x[i : i + 1, :length], data.y[i : i + 1]), stage)
        assert (together[i] - alone[0]).abs().max() < 1e-5


def test_a_network_told_its_stride_keeps_more_of_its_accuracy_on_a_smooth_task():
    training.seed_everything(0)
    model = SequenceModel("s4d", d_input=1, d_model=16, n_layers=1, d_output=3, layer_options={"d_state": 8})
    budget = Budget(epochs=25, batch=16, lr=0.01, layer_lr=0.005, weight_decay=0.0, warmup=0.1, clip=1.0)
    smooth = {"length": 128, "span": 128}
    held_out = tones(40, seed=1, **smooth)
    Trainer(model, tones(160, **smooth), held_out, budget, 0, cross_entropy, training.error_rate).fit()
    test = tones(300, seed=2, **smooth)
    coarse = Data(test.x[:, ::2], test.y)
    fine = 1 - training.error_rate(model, test)
    told, not_told = (1 - training.error_rate(model, coarse, step_scale=scale) for scale in (2.0, 1.0))
    assert fine > 0.9
    assert fine - told < 0.1 and fine - not_told > 0.3


def test_which_models_have_a_time_scale():
    cases = [
        ("s4d", {}, True),
        ("s6", {}, True),
        ("mamba", {}, True),
        ("transformer", {"n_heads": 2}, False),
        ("deltanet", {"n_heads": 2}, False),
    ]
    cases += [("s4d", {"step_rule": "none"}, False), ("deltanet", {"n_heads": 2, "step_rule": "semigroup"}, True)]
    for layer, options, has in cases:
        model = {"name": layer, "layer": layer, "options": options}
        assert has_time_scale(build_model(model, NETWORK, d_input=1, d_output=2)) == has


# ---------------------------------------------------------------- training


@pytest.mark.parametrize("plan", [Plan([1]), Plan([1, 1], restart=False)])
def test_stages_of_stride_1_are_plain_training_bit_for_bit(plan):
    plain, by_plan = network(), network()
    whole = Trainer(plain, tones(28), tones(20, seed=1), BUDGET, 3, cross_entropy, training.error_rate).fit()
    outcome = staged(plan, by_plan).fit()
    assert same(plain, by_plan)
    assert [line["loss"] for line in outcome.history] == [line["loss"] for line in whole.history]


def test_a_plan_of_one_stage_ends_in_the_weights_of_the_benchmark(tmp_path):
    benchmark.train(task(), MODEL, NETWORK, [BUDGET], 5, weights=tmp_path / "plain.pt")
    trained = []
    fit = StagedTrainer.fit

    def keeping(self):
        trained.append(self.model)
        return fit(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StagedTrainer, "fit", keeping)
        rows, times, _ = curriculum.train(task(), MODEL, NETWORK, BUDGET, {"name": "plain", "strides": [1]}, 5)
    plain = torch.load(tmp_path / "plain.pt", weights_only=True)
    assert all(torch.equal(plain[name], value) for name, value in trained[0].state_dict().items())
    assert [row["epoch"] for row in rows] == [time["epoch"] for time in times] == [1, 2, 3, 4]


def test_other_strides_give_other_weights_and_the_last_stage_is_the_plain_model():
    plain, coarse = network(), network()
    staged(Plan([1]), plain).fit()
    trainer = staged(Plan([4, 1]), coarse)
    outcome = trainer.fit()
    assert not same(plain, coarse)
    assert [line["stride"] for line in outcome.history] == [4, 4, 1, 1]
    assert trainer.options == {} and trainer.source.x.shape[1] == 48
    assert outcome.history[-1]["accuracy"] == outcome.history[-1]["accuracy_stage"]


class Stopped(Exception):
    pass


@pytest.mark.parametrize("plan", [Plan([4, 2, 1]), Plan([4, 1], shares=[0.5, 0.5], restart=False, patience=1, improvement=0.9)])
@pytest.mark.parametrize("stop_at", [3, 6, 9, 15])
def test_a_run_stopped_in_a_stage_continues_in_it_to_the_same_weights(tmp_path, monkeypatch, plan, stop_at):
    whole = network()
    wanted = staged(plan, whole).fit()
    monkeypatch.setattr(training, "SAVE_EVERY", -1.0)
    path, update, count = tmp_path / "checkpoint.pt", Trainer._update, []

    def stopping(self, batch):
        count.append(1)
        if len(count) == stop_at:
            raise Stopped
        return update(self, batch)

    monkeypatch.setattr(Trainer, "_update", stopping)
    with pytest.raises(Stopped):
        staged(plan, network(), path).fit()
    monkeypatch.setattr(Trainer, "_update", update)
    saved = torch.load(path, weights_only=True)
    trainer = staged(plan, network(seed=99), path)
    assert trainer.fit() == wanted and same(whole, trainer.model)
    # The seconds of the first try are kept: whole epochs as they were, the broken one grows.
    done = len(saved["seconds"])
    assert trainer.seconds[:done] == saved["seconds"] and len(trainer.seconds) == BUDGET.epochs
    if saved["step"] % trainer.steps_per_epoch:
        assert trainer.seconds[done] > saved["spent"] > 0


def test_rows_say_what_was_read_and_what_a_refinement_changed():
    rows, times, _ = curriculum.train(
        task(), MODEL, NETWORK, BUDGET, {"name": "coarse", "strides": [5, 1], "epochs": [2, 1]}, 1
    )
    assert [row["samples"] for row in rows] == [40 * 10, 40 * 20, 40 * 20 + 40 * 48]
    assert [(row["stage"], row["stride"]) for row in rows] == [(1, 5), (1, 5), (2, 1)]
    assert [row["accuracy_next"] is None for row in rows] == [True, False, True]
    assert rows[1]["accuracy_next"] == rows[1]["accuracy"]
    assert rows[1]["drift"] > 0 and rows[1]["predicted"] > 0
    assert all(time["seconds"] > 0 for time in times)
    table = tables.rows_to_table("curriculum", rows)
    assert table["status"].to_pylist() == ["ok"] * 3


def test_the_accuracies_around_a_refinement_are_those_of_the_same_weights():
    model = network(dropout=0.0)
    trainer = staged(Plan([4, 2, 1], epochs=[1, 1, 1]), model)
    kept, judge = [], StagedTrainer._judge

    def keeping(self, epoch):
        kept.append({name: value.clone() for name, value in self.model.state_dict().items()})
        return judge(self, epoch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StagedTrainer, "_judge", keeping)
        line = trainer.fit().history[0]
    model.load_state_dict(kept[0])
    test = tones(20, seed=1)
    for name, stride in (("accuracy", 1), ("accuracy_stage", 4), ("accuracy_next", 2)):
        coarse = Data(test.x[:, ::stride], test.y)
        assert line[name] == pytest.approx(1 - training.error_rate(model, coarse, step_scale=float(stride)))


def test_a_stride_longer_than_a_sequence_is_a_problem_of_the_plan():
    with pytest.raises(Problem, match="curriculum.plans: far: task tones: stride 64 is longer"):
        curriculum.train(task(), MODEL, NETWORK, BUDGET, {"name": "far", "strides": [64, 1]}, 0)


def test_half_precision_learns_nearly_the_same_and_other_precisions_are_refused():
    with pytest.raises(ValueError, match="unknown precision 'float16'"):
        Budget(**vars(BUDGET) | {"precision": "float16"})
    for layer in ("s4d", "s6", "mamba", "transformer"):
        losses = {}
        for precision in training.PRECISIONS:
            budget = Budget(**vars(BUDGET) | {"precision": precision})
            losses[precision] = [
                line["loss"] for line in staged(Plan([4, 1]), network(layer, 0.0), budget=budget).fit().history
            ]
        assert losses["bfloat16"] != losses["float32"]
        assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=0.05)


def test_a_plan_works_in_a_loop_of_ones_own():
    model, data, epochs = torch.nn.GRU(1, 3, batch_first=True), tones(12, 30), 6
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    plan, lengths_seen, rates = Plan([5, 2, 1]), [], []
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: plan.rate(step, epochs, 3))
    for coarse in plan.stages(epochs):
        for _ in range(coarse.epochs):
            for index in torch.arange(12).split(4):
                x, _ = coarse.reduce(data.x[index])
                loss = cross_entropy(model(x)[0][:, -1], data.y[index])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                lengths_seen.append(x.shape[1])
                rates.append(optimizer.param_groups[0]["lr"])
                scheduler.step()
    assert lengths_seen == [6] * 6 + [15] * 6 + [30] * 6
    assert rates == pytest.approx([0.5 * plan.rate(step, epochs, 3) for step in range(18)])


# ---------------------------------------------------------------- strides from task and model


def rotation(length=60, turn=0.1):
    """Unit vectors that turn by `turn` a step, (1, length, 2)."""
    angle = turn * torch.arange(length, dtype=torch.float64)
    return torch.stack([angle.cos(), angle.sin()], -1)[None]


@pytest.mark.parametrize("stride", [1, 2, 3, 6, 12])
def test_the_hold_error_of_a_rotation_is_that_of_its_score(stride):
    turn, beta = 0.1, 0.3
    lags = np.arange(1, 16)
    mu_t = ((1 + np.cos(turn * lags)) / 2 - beta) / (1 - beta)
    exact = math.sqrt(np.mean([2 * (1 - math.cos(turn * t)) for t in range(stride)]))
    measured = hold_error(5 * rotation(turn=turn), Stage(0, stride, 0, 1))
    assert measured == pytest.approx(exact, rel=1e-9)
    assert hold_error_of(mu_t, beta, stride) == pytest.approx(exact, rel=1e-9)
    with pytest.raises(ValueError, match="up to lag 19; there are 15"):
        hold_error_of(mu_t, beta, 20)


def test_the_hold_error_leaves_padding_out_and_is_smaller_for_means():
    latents, lengths = rotation().repeat(2, 1, 1), torch.tensor([60, 24])
    latents[1, 24:] = 7.0
    stage = Stage(0, 6, 0, 1)
    assert hold_error(latents, stage, lengths) == pytest.approx(hold_error(rotation(), stage), rel=1e-9)
    assert hold_error(rotation(), Stage(0, 6, 0, 1, "pool")) < 0.7 * hold_error(rotation(), stage)


def test_the_automatic_plan_takes_the_coarsest_stride_within_its_tolerance():
    prediction = Prediction(2.0, {1: 0.0, 2: 0.05, 4: 0.1, 8: 0.3, 16: 0.5})
    assert automatic(prediction, 0.2).strides == (4, 1)
    assert automatic(prediction, 2.0, shares=[0.7, 0.3]).shares == (0.7, 0.3)
    assert automatic(prediction, 0.05, shares=[0.7, 0.3]) == Plan([1])
    assert prediction.drift(8, 4) == pytest.approx(0.4)


def test_the_automatic_plan_is_coarser_on_a_smoother_task():
    entry = {"name": "auto", "automatic": {"strides": [2, 4, 8, 16, 999], "tolerance": 0.5}, "restart": False}
    generator = torch.Generator().manual_seed(0)
    rough = Data(torch.randn(32, 48, 1, generator=generator), torch.zeros(32, dtype=torch.long))
    slow = Data(torch.sin(torch.arange(48.0) / 16 + torch.rand(32, 1, generator=generator) * 6)[..., None], rough.y)
    model = network(dropout=0.0)
    (coarse, seen_slow), (fine, seen_rough) = (curriculum.chosen(entry, model, data) for data in (slow, rough))
    assert coarse.strides[0] > fine.strides[0]
    assert seen_slow.delta[4] < seen_rough.delta[4] and 999 not in seen_slow.delta


def test_predicted_drift_orders_the_strides_as_the_measured_one_does():
    model, data = network(dropout=0.0).eval(), tones(60)
    prediction = curriculum.foresee(model, data, [2, 3, 4, 6])
    outputs = {stride: seen(model, data, Stage(0, stride, 0, 1)) for stride in (1, 2, 3, 4, 6)}
    measured = [curriculum.departure(outputs[stride], outputs[1]) for stride in (2, 3, 4, 6)]
    predicted = [prediction.drift(stride) for stride in (2, 3, 4, 6)]
    assert measured == sorted(measured) and predicted == sorted(predicted)
    assert predicted == pytest.approx(measured, rel=0.5)


# ---------------------------------------------------------------- time to target, from known times

SEEDS = (0, 1, 2)
NOISE = {0: 1.0, 1: 1.1, 2: 0.95}


def invented(plans, fail=(), majority=0.1):
    """Tables of runs: plans {name: (stages by epoch, strides by stage, accuracy by epoch, seconds by epoch)}."""
    rows, times = [], []
    for (plan, (by_epoch, strides, accuracies, seconds)), seed in itertools.product(plans.items(), SEEDS):
        keys = {"task": "t", "model": "m", "plan": plan, "seed": seed}
        within = [by_epoch[:k].count(part) for k, part in enumerate(by_epoch)]
        lr = [1 / (1 + k if plan == "continued" else 1 + within[k]) for k in range(len(by_epoch))]
        lasting = accuracies[:2] if (plan, seed) in fail else accuracies
        for epoch, (part, accuracy) in enumerate(zip(by_epoch, lasting, strict=False), start=1):
            stride = strides[part - 1]
            rows.append(keys | {"epoch": epoch, "stage": part, "stride": stride, "samples": epoch * 100 // stride,
                                "accuracy": accuracy, "accuracy_stage": accuracy, "loss": 1.0, "majority": majority,
                                "lr": lr[epoch - 1]})  # fmt: skip
            factor = NOISE[seed] if plan == "coarse" else 1.0
            times.append(keys | {"epoch": epoch, "seconds": seconds[part - 1] * factor})
        if (plan, seed) in fail:
            rows.append(keys | {"epoch": 3, "status": "diverged", "reason": "loss not finite"})
    return rows, times


PLANS = {
    "plain": ([1] * 6, [1], [0.2, 0.4, 0.5, 0.7, 0.8, 0.8], [10.0]),
    "plain_short": ([1] * 4, [1], [0.3, 0.5, 0.77, 0.77], [10.0]),
    "restarts": ([1, 1, 2, 2, 2, 2], [1, 1], [0.3, 0.3, 0.6, 0.79, 0.795, 0.8], [10.0, 10.0]),
    "coarse": ([1, 1, 2, 2, 2, 2], [4, 1], [0.3, 0.5, 0.79, 0.79, 0.8, 0.8], [3.0, 10.0]),
}


def time_to_target(tmp_path, plans=PLANS, fail=(), relative=(0.95, 0.99), published=(), automatic=(), majority=0.1):
    for name, content in zip(("curriculum", "curriculum_times"), invented(plans, fail, majority), strict=True):
        tables.write(name, content, tmp_path / f"{name}.parquet")
    cfg = {"relative": list(relative), "automatic": list(automatic)}
    cfg["published"] = [{"task": "t", "accuracies": list(published)}] if published else []
    inputs = [f"{name}={tmp_path / name}.parquet" for name in ("curriculum", "curriculum_times")]
    out = tmp_path / "time_to_target.parquet"
    started("time_to_target", ["--cfg", json.dumps(cfg), "--inputs", *inputs, "--rows", str(out)], ("rows",))
    return {(row["plan"], row["target"], row["baseline"]): row for row in tables.read(out).to_pylist()}


def test_time_to_target_against_the_cheapest_budget_and_the_same_restarts(tmp_path):
    rows = time_to_target(tmp_path)
    # 95 % of .8 is .76: coarse has its second evaluation after 2 x 3 + 2 x 10 = 26 s, the short run after 40, plain after 60.
    ratios = [26 * NOISE[seed] / 40 for seed in SEEDS]
    row = rows["coarse", "95 % of plain", "envelope"]
    # The variance is pooled with that of the restarts, which have none against the envelope.
    centre, half = np.mean(np.log(ratios)), quantile_975(4) * math.sqrt(np.var(np.log(ratios), ddof=1) / 2 / 3)
    assert row["target_accuracy"] == pytest.approx(0.76)
    assert row["baseline_plan"] == "plain_short" and row["status"] == "ok"
    assert row["ratio"] == pytest.approx(math.exp(centre)) and row["ratio_median"] == pytest.approx(26 / 40)
    assert (row["low"], row["high"]) == (pytest.approx(math.exp(centre - half)), pytest.approx(math.exp(centre + half)))
    assert row["ratio_samples"] == pytest.approx(400 / 400)
    assert row["baseline_seconds"] == pytest.approx(40) and row["seconds"] == pytest.approx(26 * np.mean(list(NOISE.values())))
    assert rows["coarse", "95 % of plain", "restarts"]["ratio_median"] == pytest.approx(26 / 50)
    # The short run never gets to .792, so the long one is the envelope there.
    whole = rows["coarse", "99 % of plain", "envelope"]
    assert whole["baseline_plan"] == "plain" and whole["ratio_median"] == pytest.approx(46 / 60)
    assert ("plain", "95 % of plain", "envelope") not in rows and ("restarts", "95 % of plain", "restarts") not in rows


def test_a_target_that_the_most_frequent_class_reaches_is_undefined(tmp_path):
    row = time_to_target(tmp_path, majority=0.77)["coarse", "95 % of plain", "envelope"]
    assert row["status"] == "undefined" and row["ratio"] is None
    assert row["reason"] == "the most frequent class is as accurate"


def test_one_evaluation_at_the_target_does_not_reach_it(tmp_path):
    plans = PLANS | {"coarse": ([1, 1, 2, 2], [4, 1], [0.3, 0.9, 0.5, 0.9], [3.0, 10.0])}
    row = time_to_target(tmp_path, plans)["coarse", "95 % of plain", "envelope"]
    assert row["status"] == "censored" and row["ratio"] is None and row["n_reached"] == 0


def test_a_run_that_diverged_is_censored_and_in_no_ratio_by_itself(tmp_path):
    row = time_to_target(tmp_path, fail={("coarse", 1)})["coarse", "95 % of plain", "envelope"]
    assert (row["n_seeds"], row["n_reached"], row["status"]) == (3, 2, "censored")
    assert row["reason"] == "reached in 2 of 3 seeds, by plain_short in 3"
    assert row["ratio"] == pytest.approx(26 / 40 * math.sqrt(NOISE[0] * NOISE[2]))


def test_published_targets_and_plans_without_a_baseline(tmp_path):
    plans = PLANS | {"three": ([1, 2, 3, 3], [4, 2, 1], [0.3, 0.5, 0.79, 0.79], [3.0, 5.0, 10.0])}
    rows = time_to_target(tmp_path, plans, relative=(), published=(0.5,))
    assert rows["coarse", "0.5 as published", "envelope"]["target_accuracy"] == 0.5
    row = rows["three", "0.5 as published", "restarts"]
    assert row["status"] == "undefined" and row["reason"] == "no plan of stride 1 has as many restarts"


def test_a_plan_that_goes_on_with_its_learning_rate_is_compared_with_plain_training_of_as_many_epochs(tmp_path):
    rows = time_to_target(tmp_path, PLANS | {"continued": PLANS["coarse"]})
    row = rows["continued", "95 % of plain", "restarts"]
    assert row["baseline_plan"] == "plain" and row["ratio"] == pytest.approx(26 / 60)
    assert rows["coarse", "95 % of plain", "restarts"]["baseline_plan"] == "restarts"


def test_an_automatic_plan_that_stays_plain_is_compared_and_is_no_baseline(tmp_path):
    plans = PLANS | {"auto": ([1] * 4, [1], [0.3, 0.77, 0.77, 0.77], [10.0])}
    rows = time_to_target(tmp_path, plans, automatic=["auto"])
    row = rows["auto", "95 % of plain", "envelope"]
    assert row["baseline_plan"] == "plain_short" and row["ratio"] == pytest.approx(30 / 40)


def test_views_say_final_accuracy_cost_and_drop(tmp_path):
    rows, times = invented(PLANS)
    for row in rows:
        if row["plan"] == "coarse" and row["epoch"] == 2:
            row |= {"accuracy_stage": 0.6 + 0.01 * row["seed"], "accuracy_next": 0.5, "predicted": 0.3, "drift": 0.2}
    for name, content in (("curriculum", rows), ("curriculum_times", times)):
        tables.write(name, content, tmp_path / f"{name}.parquet")
    connection = catalog.open_files({name: tmp_path / f"{name}.parquet" for name in ("curriculum", "curriculum_times")})
    drop = connection.sql("FROM curriculum_drop").to_arrow_table().to_pylist()
    assert len(drop) == 1 and drop[0]["drop"] == pytest.approx(0.11) and (drop[0]["stride"], drop[0]["to_stride"]) == (4, 1)
    half = quantile_975(2) * 0.01 / math.sqrt(3)
    assert (drop[0]["low"], drop[0]["high"]) == (pytest.approx(0.11 - half), pytest.approx(0.11 + half))
    final = {row["plan"]: row for row in connection.sql("FROM curriculum_final").to_arrow_table().to_pylist()}
    assert final["plain_short"]["gain"] == pytest.approx(-0.03) and final["plain_short"]["cost"] == pytest.approx(40 / 60)
    assert final["plain"]["gain_low"] is None and final["coarse"]["cost_samples"] == pytest.approx(600 / 600)
    stride = {row["stride"]: row for row in connection.sql("FROM curriculum_stride").to_arrow_table().to_pylist()}
    assert stride[4]["cost"] == pytest.approx(0.3, rel=0.06)
    # A line through 10 s at stride 1 and 3 s at stride 4 meets the axis at 2/3 s, and is straight.
    assert stride[4]["fixed"] == pytest.approx(2 / 3, rel=0.3) and stride[4]["excess"] == pytest.approx(1)
    curve = connection.sql("SELECT seconds FROM curriculum_curve WHERE plan = 'restarts' ORDER BY epoch").fetchall()
    assert [seconds for (seconds,) in curve] == [10, 20, 30, 40, 50, 60]


def test_seeds_that_refine_at_different_epochs_make_one_curve(tmp_path):
    rows, times = invented(PLANS)
    early = [row for row in rows if row["plan"] == "coarse" and row["stride"] > 1][-1]
    early |= {"stage": early["stage"] + 1, "stride": 1}
    for name, content in (("curriculum", rows), ("curriculum_times", times)):
        tables.write(name, content, tmp_path / f"{name}.parquet")
    connection = catalog.open_files({name: tmp_path / f"{name}.parquet" for name in ("curriculum", "curriculum_times")})
    curve = connection.sql(
        "SELECT epoch, stride, n_seeds FROM curriculum_curve WHERE plan = 'coarse' ORDER BY epoch"
    ).fetchall()
    assert [epoch for epoch, _, _ in curve] == sorted({row["epoch"] for row in rows if row["plan"] == "coarse"})
    assert {seeds for _, _, seeds in curve} == {len({row["seed"] for row in rows})}
    assert dict((epoch, stride) for epoch, stride, _ in curve)[early["epoch"]] == 1


# ---------------------------------------------------------------- the stage's script


def run(folder, plans, seeds=(0,), model=MODEL):
    source = folder / "tones.parquet"
    if not source.exists():
        write(task(), source)
    cfg = {"task": "tones", "model": model, "network": NETWORK, "training": vars(BUDGET) | {"epochs": 2}, "device": "cpu"}
    cfg |= {"plans": plans, "seeds": list(seeds)}
    base = folder / "tables"
    paths = {
        "rows": base / "curriculum" / "rows.parquet",
        "runs": base / "curriculum" / "runs.parquet",
        "times": base / "times.parquet",
    }
    outputs = [part for name, path in paths.items() for part in (f"--{name}", str(path))]
    argv = ["--cfg", json.dumps(cfg), "--inputs", f"sequences={source}", *outputs]
    started("curriculum", argv, tuple(paths))
    return paths


def test_the_stage_trains_what_is_new_only_and_repeats_to_the_same_bytes(tmp_path):
    plans = [{"name": "plain", "strides": [1]}, {"name": "coarse", "strides": [4, 1]}]
    paths = run(tmp_path, plans)
    first, times = paths["rows"].read_bytes(), paths["times"].read_bytes()
    run(tmp_path, plans)
    assert (paths["rows"].read_bytes(), paths["times"].read_bytes()) == (first, times)
    kept = tables.read(paths["times"]).to_pylist()
    run(tmp_path, [*plans, {"name": "auto", "automatic": {"strides": [2, 4], "tolerance": 9.0}}])
    rows, seconds = tables.read(paths["rows"]).to_pylist(), tables.read(paths["times"]).to_pylist()
    assert {row["plan"] for row in rows} == {"plain", "coarse", "auto"}
    assert [row for row in seconds if row["plan"] != "auto"] == kept
    other = tmp_path / "other"
    other.mkdir()
    assert run(other, plans)["rows"].read_bytes() == first


def test_the_stage_says_which_plan_does_not_fit_and_which_model_has_no_time_scale(tmp_path, capsys):
    with pytest.raises(SystemExit) as left:
        run(tmp_path, [{"name": "far", "strides": [99, 1]}])
    assert left.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "curriculum.plans: far: task tones: stride 99 is longer than the shortest sequence, 48 steps: lower it"
    )
    transformer = {"name": "transformer", "layer": "transformer", "options": {"n_heads": 2}}
    paths = run(tmp_path, [{"name": "coarse", "strides": [4, 1]}], model=transformer)
    assert "transformer has no time scale" in capsys.readouterr().err
    assert not any(row["time_scale"] for row in tables.read(paths["rows"]).to_pylist())
