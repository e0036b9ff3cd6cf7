"""Pathfinder: the label is what a walk over the image finds, the classes balance, and any shard can be made anywhere."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from continuity import latents
from continuity.metric import task_continuity
from continuity.tasks import make, pathfinder

CASES = [(16, 4), (32, 6), (32, 9), (32, 14), (64, 6), (64, 14), (128, 6), (128, 14), (256, 9)]


def spread(pixels, reach):
    """Pixels within `reach` along x and y of those given."""
    for axis in (0, 1):
        pixels = np.any([np.roll(np.pad(pixels, reach), step, axis) for step in range(-reach, reach + 1)], axis=0)
        pixels = pixels[reach:-reach, reach:-reach]
    return pixels


def walk(start, allowed, reach):
    """Allowed pixels that jumps of at most `reach` pixels lead to."""
    found = start
    while True:
        more = spread(found, reach) & allowed
        if (more == found).all():
            return found
        found = more


def disc_pixels(image, radius):
    """Pixels of solid squares that only a disc can hold."""
    side = round(1.3 * radius)
    size = len(image) - side + 1
    filled = np.mean([image[v : v + size, u : u + size] for v in range(side) for u in range(side)], axis=0)
    return np.pad(filled > 0.9, ((0, side - 1), (0, side - 1)))


def label_of(image, size):
    """1 where jumps of twice the margin, from paddle to paddle, lead from one disc to the other."""
    geometry = pathfinder.GEOMETRY[size]
    discs = disc_pixels(image, geometry.disc_radius)
    first = np.zeros_like(discs)
    first[np.unravel_index(discs.argmax(), discs.shape)] = True
    first = walk(first, discs, 2)
    others = discs & ~first
    assert others.any(), "one disc"
    return int((walk(first, image > 0, 2 * geometry.margin) & others).any())


@pytest.mark.parametrize("distractors", [0, None])
@pytest.mark.parametrize("size, contour", CASES)
def test_a_walk_over_the_image_recovers_every_label(size, contour, distractors):
    count = 150 if size < 64 else 30
    images, labels = pathfinder.generate(5, "train", 0, count, size, contour, distractors)
    assert [label_of(image, size) for image in images] == labels.tolist()


def test_the_classes_are_balanced():
    for contour in (6, 14):
        labels = pathfinder.generate(0, "train", 0, 2000, 32, contour)[1]
        assert abs(labels.mean() - 0.5) < 4 * 0.5 / 2000**0.5


def test_the_layout_does_not_tell_the_label():
    images, labels = pathfinder.generate(1, "train", 0, 4000, 32, 9)
    ink = (images > 0).mean(axis=(1, 2))
    spread_of_mean = ink.std() * (2 / 2000) ** 0.5
    assert abs(ink[labels == 1].mean() - ink[labels == 0].mean()) < 4 * spread_of_mean


def test_every_image_made_is_told():
    told = []
    make({"name": "pathx", "size": 16, "contour": 3, "n": {"train": 3, "test": 2}}, seed=1, tell=told.append)
    assert told == [5] * 5


def test_distractors_are_where_they_are_asked_for():
    clean, _ = pathfinder.generate(2, "train", 0, 100, 32, 6, 0)
    full, _ = pathfinder.generate(2, "train", 0, 100, 32, 6)
    assert (full >= clean).all()
    assert (full > 0).sum() > 1.5 * (clean > 0).sum()


def test_a_shard_equals_its_part_of_the_whole():
    images, labels = pathfinder.generate(3, "train", 0, 40)
    shard, shard_labels = pathfinder.generate(3, "train", 25, 5)
    np.testing.assert_array_equal(shard, images[25:30])
    np.testing.assert_array_equal(shard_labels, labels[25:30])
    for other in (pathfinder.generate(3, "test", 25, 5)[0], pathfinder.generate(4, "train", 25, 5)[0]):
        assert not np.array_equal(other, shard)
    assert len({image.tobytes() for image in images}) == len(images)


def test_images_are_the_same_without_numba():
    code = (
        "from continuity.tasks import pathfinder; import json;"
        "images, labels = pathfinder.generate(0, 'train', 0, 2, 16, 4); print(json.dumps([images.tolist(), labels.tolist()]))"
    )
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    images, labels = pathfinder.generate(0, "train", 0, 2, 16, 4)
    assert json.loads(plain.stdout) == [images.tolist(), labels.tolist()]


def test_pathfinder_and_pathx_are_tasks_of_pixels():
    n = {"train": 6, "validation": 2, "test": 3}
    for name, size in (("pathfinder", 32), ("pathx", 128)):
        task = make({"name": name, "n": n, "contour": 6}, seed=7)
        train = task.splits["train"]
        assert [len(found) for found in task.splits.values()] == [6, 2, 3]
        assert set(train.lengths) == {size * size} and train.values.shape[1] == 1 and task.classes == ("apart", "joined")
        assert train.values.min() == 0 and train.values.max() == 1
        images, labels = pathfinder.generate(7, "train", 0, 6, size, 6)
        np.testing.assert_array_equal(train.values.reshape(images.shape), images)
        np.testing.assert_array_equal(train.labels, labels)


@pytest.mark.parametrize("options", [{"size": 33}, {"contour": 2}, {"distractors": -1}, {"n": {"dev": 1}}])
def test_impossible_settings_are_refused(options):
    with pytest.raises(ValueError, match="size is 33|contour is 2|distractors is -1|no split dev"):
        make({"name": "pathfinder", "n": {"test": 1}} | options)


def test_contours_without_room_end_with_an_error(monkeypatch):
    monkeypatch.setattr(pathfinder, "PATIENCE", 1 << 13)
    with pytest.raises(ValueError, match="no room for two chains of 40 paddles in 16 x 16"):
        pathfinder.generate(0, "test", 0, 1, 16, 40)


def test_pixels_are_more_continuous_than_listops_and_path_x_than_pathfinder():
    # The published order, as far as generated tasks go: ListOps .08 < Pathfinder .32 < Path-X .36 (trained encoders).
    found = []
    for name, n in (("listops", 60), ("pathfinder", 100), ("pathx", 20)):
        task = make({"name": name, "n": {"test": n}}, seed=1)
        found.append(task_continuity(latents.raw(task)(task.splits["test"]), bootstrap=200))
    assert found[0].high < 0.01 < found[1].low < found[1].high < found[2].low
