"""Column Popper as its contract tells it, and games that are played to set every step beside it.

Rule 1: the first half is what an implementation is compared with: what an action does to a board, and when rows fall. It is
    written for reading, not for speed, and shares no code with an implementation. What falls is chance and is not told
    here; the checks see it on the board.
Rule 2: what is not observed is never guessed: the held block's column is the one that was picked. Each step starts from
    the board that was observed, so one mistake of an implementation is not held against all its later steps.
Rule 3: a policy is a function of the step's number and the position, so that the same subject sees the same games.
Rule 4: a game whose settings the constructor does not take is left out; if no game is left, the check cannot tell.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from itertools import permutations
from typing import Any, Final, TypeAlias

from gymnasium import spaces

from proctor.contracts.conformance.env_driver import EnvDriver, accepts_keyword
from proctor.contracts.conformance.report import CannotTell, Cases, CheckProbe, shorten
from proctor.contracts.conformance.samples import samples

Stacks: TypeAlias = tuple[tuple[int, ...], ...]  # the columns, each from the top down

TRIPLE: Final = 3
BOARD: Final = (12, 3)
POOL: Final = (1, 2, 3)
ACTION_MS: Final = 100
DURATION_MS: Final = 60_000
STEPS: Final = DURATION_MS // ACTION_MS
CURVE: Final = ((0, 3_000), (20_000, 2_000), (40_000, 1_000))
_DEPTH: Final = 3
_MOST_MOVES: Final = 300


class ActionKind(StrEnum):
    """What an action is in the position in which it is taken."""

    PICK = "a pick"
    PLACE = "a placement on another column"
    PUT_BACK = "a put-back"
    NOTHING_THERE = "a pick on an empty column"
    FULL_DROP = "a placement on a full column"
    FALL = "a manual fall"


INVALID: Final = frozenset({ActionKind.NOTHING_THERE, ActionKind.FULL_DROP})


@dataclass(frozen=True, slots=True)
class BoardPosition:
    """What lies in each column, and the column whose last block is held."""

    height: int
    stacks: Stacks
    held: int | None = None

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return sum(map(len, self.stacks))

    @property
    def full(self) -> bool:
        """Whether a column has no room for a fall."""
        return any(len(stack) >= self.height for stack in self.stacks)

    @property
    def selection(self) -> list[int]:
        """The selection as it is observed."""
        return [0, 0] if self.held is None else [1, self.stacks[self.held][-1]]

    @property
    def cells(self) -> list[list[int]]:
        """The board as rows, row 0 on top."""
        return [[stack[row] if row < len(stack) else 0 for stack in self.stacks] for row in range(self.height)]

    def kind_of(self, action: int) -> ActionKind:
        """Return what `action` is here."""
        if action == len(self.stacks):
            return ActionKind.FALL
        if self.held is None:
            return ActionKind.PICK if self.stacks[action] else ActionKind.NOTHING_THERE
        if action == self.held:
            return ActionKind.PUT_BACK
        return ActionKind.FULL_DROP if len(self.stacks[action]) >= self.height else ActionKind.PLACE

    def after(self, action: int) -> "ActionEffect":
        """Return what `action` does before anything falls."""
        kind = self.kind_of(action)
        if kind is ActionKind.PICK:
            return ActionEffect(kind, BoardPosition(self.height, self.stacks, action))
        if self.held is None or kind not in (ActionKind.PLACE, ActionKind.PUT_BACK):
            return ActionEffect(kind, self)
        stacks = list(self.stacks)
        value = stacks[self.held][-1]
        stacks[self.held] = stacks[self.held][:-1]
        stack = (*stacks[action], value)
        run = next((length for length, other in enumerate(reversed(stack)) if other != value), len(stack))
        popped = run // TRIPLE * TRIPLE
        stacks[action] = stack[: len(stack) - popped]
        return ActionEffect(kind, BoardPosition(self.height, tuple(stacks)), popped)


@dataclass(frozen=True, slots=True)
class ActionEffect:
    """What an action was, where it leads, and how many cells it popped."""

    kind: ActionKind
    position: BoardPosition
    popped: int = 0


def read_position(board: Any, held: int | None = None) -> BoardPosition:
    """Return the position that an observed board shows."""
    stacks = tuple(tuple(value for value in column if value) for column in board.T.tolist())
    return BoardPosition(len(board), stacks, held if held is not None and stacks[held] else None)


def interval_at(elapsed: int) -> int:
    """Return the fall interval, in milliseconds, that holds at `elapsed`."""
    return [interval for begins, interval in CURVE if begins <= elapsed][-1]


def _iterate_falls() -> Iterator[int]:
    last = 0
    for elapsed in range(ACTION_MS, DURATION_MS + 1, ACTION_MS):
        if elapsed - last >= interval_at(elapsed):
            last = elapsed
            yield elapsed


FALLS: Final = tuple(_iterate_falls())  # the milliseconds at which rows fall if nobody asks for one


@lru_cache(maxsize=4096)
def solution(height: int, stacks: Stacks) -> tuple[int, ...]:
    """Return picks and placements that lead to a pop soon, or else away from the longest column."""
    paths: list[tuple[tuple[int, ...], Stacks]] = [((), stacks)]
    for _ in range(_DEPTH):
        longer = []
        for actions, here in paths:
            for source, target in permutations(range(len(stacks)), 2):
                picked = BoardPosition(height, here).after(source).position
                effect = picked.after(target)
                if effect.popped:
                    return (*actions, source, target)
                if effect.kind is ActionKind.PLACE:
                    longer.append(((*actions, source, target), effect.position.stacks))
        paths = longer[:_MOST_MOVES]
    by_length = sorted(range(len(stacks)), key=lambda column: len(stacks[column]))
    return by_length[-1], by_length[0]


# --------------------------------------------------------------------------------------------------------------- games
Policy: TypeAlias = Callable[[int, BoardPosition], int]
"""From the number of the step (the first is 1) and the position to an action."""

MANY: Final = 2**16


@dataclass(frozen=True, slots=True)
class GamePlan:
    """How an environment is made, begun and played."""

    policy: Policy
    settings: dict[str, Any] = field(default_factory=dict)
    seed: int = 0


@dataclass(frozen=True, slots=True)
class JudgedStep:
    """A step that was just made, and what the contract says of it."""

    settings: dict[str, Any]
    number: int
    undisturbed: bool  # whether no fall was asked for up to here, so that rows fall by the schedule alone
    before: BoardPosition
    action: int
    effect: ActionEffect
    last_info: dict[str, Any]
    observation: dict[str, Any]
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]

    @property
    def elapsed(self) -> int:
        """The milliseconds since the reset, if every step takes what it should."""
        return self.number * ACTION_MS

    @property
    def manual(self) -> bool:
        """Whether the action asked for a fall."""
        return self.action == len(self.before.stacks)

    @property
    def ended(self) -> bool:
        """Whether the episode ended."""
        return self.terminated or self.truncated

    @property
    def stacks(self) -> Stacks:
        """The columns after the step."""
        return read_position(self.observation["board"]).stacks

    @property
    def moved(self) -> str:
        """The columns before and after the step, in words."""
        return f"the columns were {self.before.stacks}, are {self.stacks}"

    @property
    def selection(self) -> list[int]:
        """The selection after the step."""
        return [int(value) for value in self.observation["selection"]]

    @property
    def grown(self) -> int:
        """How many blocks there are more than the action left."""
        return sum(map(len, self.stacks)) - self.effect.position.blocks

    @property
    def fell(self) -> bool | None:
        """Whether a row fell upon what the action left; None if the board shows neither that nor a row that did not."""
        rows, left = self.observation["board"].tolist(), self.effect.position.cells
        if rows == left:
            return False
        return True if all(rows[0]) and rows[1:] == left[:-1] else None


def play(probe: CheckProbe, game: GamePlan) -> Iterator[JudgedStep]:
    """Yield every turn of `game`, until it ends or time should be up."""
    drive = EnvDriver(probe, game.settings)
    yield from turns(drive, game, *drive.reset(seed=game.seed))


def turns(drive: EnvDriver, game: GamePlan, observation: Any, info: dict[str, Any]) -> Iterator[JudgedStep]:
    """Yield every turn from what a reset has shown, until the game ends or time should be up."""
    position, undisturbed = read_position(observation["board"]), True
    for number in range(1, STEPS + 1):
        action = game.policy(number, position)
        undisturbed = undisturbed and action < len(position.stacks)
        effect = position.after(action)
        turn = JudgedStep(game.settings, number, undisturbed, position, action, effect, info, *drive.step(action))
        yield turn
        if turn.ended:
            return
        picked = action if position.held is None and not turn.manual else position.held
        position = read_position(turn.observation["board"], picked if turn.selection[0] else None)
        info = turn.info


def playable(probe: CheckProbe, games: Iterable[GamePlan]) -> Iterator[GamePlan]:
    """Yield the games whose settings the environment takes; if it takes those of none, the check cannot tell."""
    refused: set[str] = set()
    any_left = False
    for game in games:
        unknown = [name for name in game.settings if not accepts_keyword(probe, name)]
        refused.update(unknown)
        if not unknown:
            any_left = True
            yield game
    if not any_left:
        raise takes_no(refused)


def takes_no(settings: Iterable[str]) -> CannotTell:
    """Return why a check cannot tell: the environment has none of these settings."""
    names = " or ".join(f"`{name}`" for name in sorted(settings))
    return CannotTell(f"the factory or the environment's constructor takes no {names}")


def turns_of(
    games: Callable[[], Iterable[GamePlan]],
    *,
    when: Callable[[JudgedStep], bool] = lambda turn: True,
    situation: str = "a turn",
    until: Callable[[JudgedStep], bool] | None = None,
    key: str = "",
    key_on_reset: bool = True,
) -> Cases:
    """Return the cases of a check: the turns of `games` that `when` picks; `situation` says in words which.

    With `until` the first turn that it accepts is the last case, and there must be one. `key` is what the info must have for
    the check, and the contract leaves open.
    """

    def iterate_turns(probe: CheckProbe) -> Iterator[tuple[JudgedStep]]:
        if key:
            drive = EnvDriver(probe)
            _, info = drive.reset(seed=0)
            if key not in (info if key_on_reset else drive.step(0)[4]):
                raise CannotTell(f"the info has no {key!r}")
        seen = False
        for game in playable(probe, games()):
            for turn in filter(when, play(probe, game)):
                yield (turn,)
                if until is None:
                    seen = True
                elif until(turn):
                    return
        if not seen:
            raise CannotTell(f"no game showed {situation}")

    return iterate_turns


def script_policy(*actions: int) -> Policy:
    """Return a policy that takes these actions; -1 stands for the manual fall, as does whatever comes later."""

    def policy(number: int, position: BoardPosition) -> int:
        action = actions[number - 1] if number <= len(actions) else -1
        return len(position.stacks) if action < 0 else min(action, len(position.stacks))

    return policy


def crowding(number: int, position: BoardPosition) -> int:
    """Let rows fall until the board is full; pick a block, drop it on a full column, put it back; then a row falls."""
    return script_policy(*[-1] * (position.height - 1), 0, 1, 0)(number, position)


def toggling(number: int, position: BoardPosition) -> int:
    """Pick the first column's block and put it back, again and again."""
    return 0


@lru_cache(maxsize=1)
def _rolls() -> tuple[int, ...]:
    return tuple(int(roll) for roll in samples(spaces.Discrete(MANY), STEPS))


def restless(number: int, position: BoardPosition) -> int:
    """Take any action."""
    return _rolls()[number - 1] % (len(position.stacks) + 1)


def shuffling(number: int, position: BoardPosition) -> int:
    """Pick and place anywhere."""
    return _rolls()[number - 1] % len(position.stacks)


def solver() -> Policy:
    """Return a policy that pops what it can, which is enough to last until time is up on the contract's board."""
    plan: list[int] = []

    def policy(number: int, position: BoardPosition) -> int:
        if not plan:
            plan.extend(solution(position.height, position.stacks))
        return plan.pop(0)

    return policy


def closing() -> Policy:
    """Return a policy that plays well, fills the board in the last seconds and asks for a fall as time runs out."""
    well = solver()

    def policy(number: int, position: BoardPosition) -> int:
        if number <= STEPS - position.height:
            return well(number, position)
        full = [column for column, stack in enumerate(position.stacks) if len(stack) >= position.height]
        # What is held is let go where it hangs; a drop on another full column would change nothing.
        return full[0] if full and number < STEPS else len(position.stacks)

    return policy


def short_games(**settings: Any) -> Iterator[GamePlan]:
    """Yield games in which everything happens but pops and time-up, the smallest first."""
    # Empties the first column and picks there; then picks, places and puts back elsewhere.
    emptying = script_policy(0, 1, 0, 0, 1, 1, 1, 2)
    yield from (GamePlan(policy, settings) for policy in (emptying, crowding, restless, shuffling, toggling))
    yield from (GamePlan(restless, settings, seed) for seed in (1, 2, 3))


def all_games() -> Iterator[GamePlan]:
    """Yield the short games, and one that is played well."""
    yield from short_games()
    yield GamePlan(solver())


def long_games(policy: Callable[[], Policy] = solver) -> Iterator[GamePlan]:
    """Yield games that should last until time is up; not all of them need to."""
    return (GamePlan(policy(), seed=seed) for seed in range(4))


def make_board(drive: EnvDriver, *stacks: tuple[int, ...]) -> list[list[int]]:
    """Return the rows of a board of the environment's own size with these columns; the others are empty."""
    height, columns = drive.env.observation_space["board"].shape
    if columns < len(stacks) or height < max(map(len, stacks)):
        raise CannotTell(f"the board of {height} x {columns} is too small for it")
    return BoardPosition(height, (*stacks, *[()] * (columns - len(stacks)))).cells


def reset_with_options(drive: EnvDriver, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a reset with these options shows; an environment that ignores or refuses a board takes none."""
    plain, _ = drive.reset(seed=0)
    first = plain["board"].tolist()
    try:
        observation, info = drive.reset(seed=0, options=options)
    except (ValueError, TypeError, KeyError) as problem:
        raise CannotTell(f"the environment takes no such reset options: {shorten(problem)}") from problem
    if observation["board"].tolist() == first:
        raise CannotTell("the environment takes no reset options: it begins as without")
    return observation, info
