"""What each reward preset of Column Popper pays each policy, beside the score: prints a Markdown table.

    python examples/reward_presets.py --episodes 100

The contract's preset pays for every valid action, popped or not; the toggler shows what that is worth.
"""

import argparse
from collections.abc import Callable, Iterator

import gymnasium as gym
from rich.console import Console
from rich.progress import Progress

from proctor.envs.evaluation import EvaluationSummary, make_policy, run_episodes, summarize

GAME = "SpecKitAI/ColumnPopper-v1"
POLICIES = ("random", "toggler", "greedy", "search")
PRESETS = ("contract", "pops", "dense")


def played(policy: str, preset: str, episodes: int, on_episode: Callable[[], object]) -> EvaluationSummary:
    """Return what `episodes` games of `policy` amount to, from seed 0 on, with the rewards of `preset`."""
    env = gym.make(GAME, reward_preset=preset)
    results = []
    for result in run_episodes(env, make_policy(policy, env), episodes, 0):
        results.append(result)
        on_episode()
    return summarize(results)


def row(policy: str, episodes: int, on_episode: Callable[[], object] = lambda: None) -> str:
    """Return a policy's line of the table; the score is the same with every preset, for no policy sees a reward."""
    played_by = [played(policy, preset, episodes, on_episode) for preset in PRESETS]
    score = played_by[0].mean_score
    returns = [one.mean_return.value for one in played_by]
    cells = [policy, "" if score is None else f"{score.value:.1f}", *(f"{value:.2f}" for value in returns)]
    return f"| {' | '.join(cells)} |"


def table(episodes: int, on_episode: Callable[[], object]) -> Iterator[str]:
    """Yield the table line by line."""
    yield f"| policy | mean score | {' | '.join(f'mean return, `{preset}`' for preset in PRESETS)} |"
    yield "|---|" + "---|" * (1 + len(PRESETS))
    for policy in POLICIES:
        yield row(policy, episodes, on_episode)


def main() -> None:
    """Play all games and print the table; a bar shows how far it is, if a person is watching."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=100, help="games of each policy with each preset")
    episodes = parser.parse_args().episodes
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("playing", total=episodes * len(POLICIES) * len(PRESETS))
        lines = list(table(episodes, lambda: progress.advance(task)))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
