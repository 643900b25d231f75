"""A plume on the page is the plume of the pictures: the browser's fields and colours are those of the environment.

Rule: scenes come from real environments; Node evaluates what the page would draw of them.
"""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from proctor import viewer
from proctor.envs.plume.drawing.picture import paint_field, tint
from proctor.envs.plume.env import PlumeSearchEnv
from proctor.envs.plume.fields import make_thumbnail
from tests.system import programs

pytestmark = pytest.mark.system

FIELDS = Path(viewer.__file__).parent / "static" / "js" / "plume_fields.js"
GRID: dict[str, Any] = {"grid_size": [60, 40], "source_location": [17, 22]}
PLUMES: dict[str, dict[str, Any]] = {
    "gaussian": {"type": "gaussian", "sigma": 7.5},
    "advected": {"type": "advected", "wind": [0.8, -0.5], "spread": 1.7, "growth": 0.21},
    "puffs": {"type": "puffs", "wind": [0.7, 0.2], "noise": 0.4},
}
SECONDS = 30
PROGRAM = """
import { concentrationAt, paint, tinted } from "./plume_fields.mjs";
const { field, frame, source, xs, ys } = JSON.parse(process.argv[2]);
const values = paint(field, frame, source, xs, ys);
const single = ys.flatMap((y) => xs.map((x) => concentrationAt(field, frame, source, [x, y])));
const colours = tinted(values, xs.length, ys.length, false);
process.stdout.write(JSON.stringify({ values: [...values], single, colours: [...colours] }));
"""

Floats = NDArray[np.float64]


def seen_after(config: dict[str, Any], steps: int = 25) -> dict[str, Any]:
    """Return the scene of an environment that has run for a while."""
    env = PlumeSearchEnv(config=config)
    env.reset(seed=4, options={"start": (40, 30)})
    for step in range(steps):
        env.step(step % 4)
    return env.scene()


def film(folder: Path) -> Path:
    """Return a recorded plume: other numbers in every frame, at every cell."""
    path = folder / "film.npy"
    np.save(path, np.random.default_rng(3).random((30, 90, 70)))
    return path


def by_browser(folder: Path, scene: dict[str, Any], xs: Floats, ys: Floats) -> dict[str, Floats]:
    """Return what the page computes."""
    shutil.copy(FIELDS, folder / "plume_fields.mjs")
    (folder / "program.mjs").write_text(PROGRAM, "utf-8")
    static = scene["static"]
    given = {"field": static["field"], "frame": scene["frame"]["field"], "source": static["source"]}
    said = json.dumps({**given, "xs": xs.tolist(), "ys": ys.tolist()})
    command = [*programs.node(), "program.mjs", said]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=True)
    return {name: np.array(values) for name, values in json.loads(done.stdout).items()}


def assert_same(folder: Path, scene: dict[str, Any]) -> None:
    """Compare field and colours, between the cells and beyond the edges too."""
    xs, ys = np.linspace(-2.0, 71.3, 41), np.linspace(-1.5, 91.7, 37)
    static = scene["static"]
    ours = paint_field(static["field"], scene["frame"]["field"], tuple(static["source"]), xs, ys)
    page = by_browser(folder, scene, xs, ys)

    np.testing.assert_allclose(page["values"].reshape(ours.shape), ours, atol=1e-9)
    np.testing.assert_allclose(page["single"].reshape(ours.shape), ours, atol=1e-9)
    # A brightness that lies between two colours may be rounded to either.
    colours = page["colours"].reshape(*ours.shape, 4)[..., :3]
    assert np.abs(colours - tint(ours)).max() <= 4
    assert np.mean(colours != tint(ours)) < 0.001
    assert ours.max() > 0.3


@pytest.mark.parametrize("name", PLUMES)
def test_a_field_is_the_same_on_the_page(tmp_path: Path, name: str) -> None:
    assert_same(tmp_path, seen_after({**GRID, "plume": PLUMES[name]}))


def test_a_recorded_plume_is_the_same_on_the_page(tmp_path: Path) -> None:
    scene = seen_after({"plume": {"type": "movie", "path": str(film(tmp_path))}, "source_location": [17, 22]})

    assert scene["static"]["field"]["kind"] == "image"
    assert_same(tmp_path, scene)


def test_a_thumbnail_of_a_still_field_is_the_same_on_the_page(tmp_path: Path) -> None:
    scene = seen_after(GRID)
    scene["static"]["field"] = make_thumbnail(np.random.default_rng(5).random((101, 53)))

    assert_same(tmp_path, scene)


def test_a_small_thumbnail_has_no_cells_between(tmp_path: Path) -> None:
    scene = seen_after(GRID)
    scene["static"]["field"] = make_thumbnail(np.array([[0.5]]))

    assert_same(tmp_path, scene)
