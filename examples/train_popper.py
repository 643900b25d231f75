"""Trains a masked PPO on a batch of Column Popper games, draws its learning curve and lets it play 500 new games.

    python examples/train_popper.py --minutes 20 --out trained
    python examples/train_popper.py --evaluate trained/model.zip

Needs the extras `train`, `vector` and `plot`. The learner sees what an agent may know: the board, and which column it
picked from (its own action, remembered). It is told nothing of the hidden state, the clock or the seed.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.utils import get_action_masks
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnvWrapper

from proctor.envs.evaluation import make_policy, mean_interval, run_episodes
from proctor.integrations.sb3 import as_sb3

GAME = "SpecKitAI/ColumnPopper-v1"
REWARD = {"popped_cell": 1 / 3}  # a triple is worth 1; a game that is lost loses what it would have brought
CHOICE_SEED, JUDGE_SEED = 1_000_000, 2_000_000  # where the games begin that choose between two ways, and that judge
LEARNING_RATE, ENTROPY = 1.5e-3, 0.01  # at the beginning; both sink with the budget
ROLLOUT = 64  # steps of every game between two updates
WINDOW = 300  # games behind one point of the smooth curve
WAYS = {"likeliest action": True, "sampled action": False}
RIVALS = ("greedy", "search")


class Eyes(VecEnvWrapper):
    """What the learner sees: each column from its open end upwards, their lengths, and where it holds a block.

    The numbers on the blocks are only names, so they are called by the order in which they are met: boards that differ
    in names alone look the same.
    """

    def __init__(self, venv: Any) -> None:
        height, columns = venv.observation_space["board"].shape
        self.kinds = 3
        size = columns * height * self.kinds + columns * (height + 1) + columns + 1
        super().__init__(venv, observation_space=gym.spaces.Box(0, 1, (size,), np.float32))
        self.held = np.full(self.num_envs, -1)

    def reset(self) -> NDArray[np.float32]:
        """Return the first features; nothing is held."""
        self.held = np.full(self.num_envs, -1)
        return self.features(self.venv.reset()["board"], self.held)

    def step_async(self, actions: NDArray[np.int64]) -> None:
        """Remember the actions, then take them."""
        self.actions = actions
        super().step_async(actions)

    def step_wait(self) -> Any:
        """Return features in the place of every observation, the last of an episode included."""
        seen, rewards, dones, infos = self.venv.step_wait()
        before, self.held = self.held, self.remembered(self.held, self.actions, seen["selection"])
        for i in np.flatnonzero(dones):
            last = infos[i]["terminal_observation"]
            held = self.remembered(before[[i]], self.actions[[i]], last["selection"][None])
            infos[i]["terminal_observation"] = self.features(last["board"][None], held)[0]
        return self.features(seen["board"], self.held), rewards, dones, infos

    @staticmethod
    def remembered(held: NDArray[Any], actions: NDArray[Any], selection: NDArray[Any]) -> NDArray[Any]:
        """Return the column of the held block, or -1: a block that is held now was held before, or has just been picked."""
        return np.where(selection[:, 0] == 0, -1, np.where(held >= 0, held, actions))

    def features(self, board: NDArray[Any], held: NDArray[Any]) -> NDArray[np.float32]:
        """Return one row of zeros and ones for each board."""
        games, height, columns = board.shape
        stacks = board.transpose(0, 2, 1)
        lengths = np.count_nonzero(stacks, axis=2)
        rows = lengths[:, :, None] - 1 - np.arange(height)
        cells = np.where(rows >= 0, np.take_along_axis(stacks, np.maximum(rows, 0), 2), 0)
        names = self.names(cells)
        parts = (
            cells[..., None] == names[:, None, None, :],
            lengths[:, :, None] == np.arange(height + 1),
            held[:, None] == np.arange(-1, columns),
        )
        return np.concatenate([part.reshape(games, -1) for part in parts], axis=1, dtype=np.float32)

    def names(self, cells: NDArray[Any]) -> NDArray[np.int64]:
        """Return the values 1, 2, 3 in the order in which each board shows them, nearest the open ends first."""
        across = cells.transpose(0, 2, 1).reshape(len(cells), -1)
        is_value = across[:, None, :] == np.arange(1, self.kinds + 1)[:, None]
        first = np.where(is_value.any(2), is_value.argmax(2), across.shape[1])
        return first.argsort(1, kind="stable") + 1


class Coach(BaseCallback):
    """Keeps the budget and the scores, lets rate and entropy sink, and shows how it goes."""

    def __init__(self, show: Progress, minutes: float, steps: int | None, clock: Callable[[], float]) -> None:
        super().__init__()
        self.show, self.seconds, self.steps, self.clock = show, minutes * 60, steps, clock
        self.task = show.add_task("", total=1.0)
        self.began = clock()
        self.scores: list[float] = []
        self.curve: list[tuple[int, float, float]] = []  # steps, mean score of the last rollout's games, smoothed
        self.seeds: set[int] = set()
        self._games = self._told = 0

    @property
    def spent(self) -> float:
        """The share of the budget that is gone."""
        by_steps = self.num_timesteps / self.steps if self.steps else 0.0
        return min(max((self.clock() - self.began) / self.seconds, by_steps), 1.0)

    def _on_step(self) -> bool:
        for i in np.flatnonzero(self.locals["dones"]):
            info = self.locals["infos"][i]
            self.scores.append(float(info["score"]))
            self.seeds.add(int(info["seed"]))
        return self.spent < 1.0

    def _on_rollout_end(self) -> None:
        left = 1.0 - self.spent
        self.model.lr_schedule = lambda _: LEARNING_RATE * max(left, 0.02)
        self.model.ent_coef = ENTROPY * max(left, 0.05)
        new = self.scores[self._games :]
        self._games = len(self.scores)
        if new:
            smooth = float(np.mean(self.scores[-WINDOW:]))
            self.curve.append((self.num_timesteps, float(np.mean(new)), smooth))
            speed = self.num_timesteps / (self.clock() - self.began)
            text = f"{self.num_timesteps / 1e6:.2f} million steps, {speed:,.0f} per second, mean score {smooth:.0f}"
            self.show.update(self.task, completed=self.spent, description=text)
            if not self.show.console.is_terminal and self.spent * 20 >= self._told:  # no bar: a line now and then
                self._told += 1
                self.show.console.print(text)


def games(count: int, **settings: Any) -> Eyes:
    """Return `count` games as the learner sees them."""
    return Eyes(as_sb3(gym.make_vec(GAME, num_envs=count, autoreset_mode="SameStep", **settings)))


def train(options: argparse.Namespace, console: Console) -> tuple[MaskablePPO, Coach]:
    """Return the trained model, and the coach with the scores on the way."""
    env = games(options.envs, reward_preset=REWARD)
    model = MaskablePPO(
        "MlpPolicy",
        env,
        learning_rate=LEARNING_RATE,
        n_steps=ROLLOUT,
        batch_size=min(1024, ROLLOUT * options.envs),
        n_epochs=3,
        gamma=0.99,
        gae_lambda=0.95,
        ent_coef=ENTROPY,
        policy_kwargs={"net_arch": {"pi": [128, 128], "vf": [128, 128]}, "activation_fn": torch.nn.ReLU},
        seed=options.seed,
        device="cpu",
    )
    columns = BarColumn(), TextColumn("{task.percentage:3.0f} %"), TimeElapsedColumn(), TextColumn("{task.description}")
    with Progress(*columns, console=console) as show:
        coach = Coach(show, options.minutes, options.steps, perf_counter)
        model.learn(options.steps or 10**12, callback=coach, log_interval=10**9)
    return model, coach


def scores_of(model: MaskablePPO, count: int, first_seed: int, *, likeliest: bool) -> dict[int, float]:
    """Return the scores of `count` games with the default settings, by seed."""
    env = games(count)
    env.seed(first_seed)
    model.set_random_seed(first_seed)
    seen = env.reset()
    scores: dict[int, float] = {}
    while len(scores) < count:
        actions, _ = model.predict(seen, action_masks=get_action_masks(env), deterministic=likeliest)
        seen, _, dones, infos = env.step(actions)
        for i in np.flatnonzero(dones):
            scores.setdefault(first_seed + int(i), float(infos[i]["score"]))
    env.close()
    return scores


def rival_scores(name: str, count: int, first_seed: int) -> list[float]:
    """Return the scores of the policy `name` in the same games."""
    env = gym.make(GAME)
    results = run_episodes(env, make_policy(name, env), count, first_seed)
    return [result.score for result in results if result.score is not None]


def judge(model: MaskablePPO, count: int, seen: set[int], console: Console) -> None:
    """Print the mean score on new seeds beside the rivals'; the better way to act was chosen on other seeds."""
    tried = {way: scores_of(model, count, CHOICE_SEED, likeliest=flag) for way, flag in WAYS.items()}
    way = max(tried, key=lambda name: np.mean(list(tried[name].values())))
    played = scores_of(model, count, JUDGE_SEED, likeliest=WAYS[way])
    table = Table("policy", "mean score", "95 % interval", title=f"{count} games, seeds from {JUDGE_SEED}")
    rows = {f"trained, {way}": [score for seed, score in played.items() if seed not in seen]}
    rows.update({name: rival_scores(name, count, JUDGE_SEED) for name in RIVALS})
    for name, scores in rows.items():
        mean = mean_interval(scores)
        bounds = "" if mean.low is None or mean.high is None else f"{mean.low:.1f} to {mean.high:.1f}"
        table.add_row(name, f"{mean.value:.1f}", bounds)
    console.print(table)


def draw(curve: list[tuple[int, float, float]], path: Path) -> None:
    """Write the learning curve as a picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), dpi=100, layout="constrained")
    axes = figure.add_subplot()
    steps, rough, smooth = np.array(curve).reshape(-1, 3).T
    axes.plot(steps / 1e6, rough, color="#9ecae1", linewidth=0.8, label="games of one rollout")
    axes.plot(steps / 1e6, smooth, color="#08519c", label=f"last {WINDOW} games")
    axes.set(xlabel="million steps", ylabel="mean score", title="Masked PPO on Column Popper", ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(path)


def arguments() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0, help="training ends after this time")
    parser.add_argument("--steps", type=int, help="or after this many steps")
    parser.add_argument("--envs", type=int, default=256, help="games played at once")
    parser.add_argument("--games", type=int, default=500, help="games played to judge the result")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    parser.add_argument("--out", type=Path, default=Path("trained"), help="folder of the model and the picture")
    parser.add_argument("--evaluate", type=Path, metavar="MODEL.zip", help="train nothing, judge this model")
    return parser.parse_args()


def main() -> None:
    """Train or load, then judge."""
    options, console = arguments(), Console()
    torch.set_num_threads(options.threads)
    if options.evaluate is not None:
        with console.status("playing"):
            judge(MaskablePPO.load(options.evaluate, device="cpu"), options.games, set(), console)
        return
    model, coach = train(options, console)
    options.out.mkdir(parents=True, exist_ok=True)
    model.save(options.out / "model.zip")
    draw(coach.curve, options.out / "curve.png")
    console.print(f"{model.num_timesteps:,} steps; model.zip and curve.png are in {options.out}")
    with console.status("playing"):
        judge(model, options.games, coach.seeds, console)


if __name__ == "__main__":
    main()
