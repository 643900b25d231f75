"""Every numbered sentence of the contracts, by its id.

Rule 1: an error that names a clause names one of these; `conformance` has one check for each.
Rule 2: the clauses of the lifecycle are derived from `lifecycle.TABLE`, one for each rule, never written by hand.
Rule 3: P is what a caller must grant (a bad argument is refused), C what a call promises, I an invariant, D that the
    same seed gives the same episode.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from proctor.contracts.lifecycle import TABLE


class Subject(StrEnum):
    """What a clause speaks of."""

    ENVIRONMENT = "environment"
    ACTION_PROCESSOR = "action processor"
    SENSOR = "sensor"
    REWARD = "reward"
    FIELD = "field"
    COLUMN_POPPER = "column popper"


@dataclass(frozen=True, slots=True)
class Clause:
    """One numbered sentence of a contract."""

    id: str
    sentence: str
    subject: Subject


def _iterate_lifecycle_sentences() -> Iterator[tuple[str, str]]:
    for rule in dict.fromkeys(row.rule for row in TABLE):
        rows = [row for row in TABLE if row.rule == rule]
        sources = " or ".join(row.source for row in rows)
        targets = {row.target for row in rows}
        condition = f" [{rows[0].when}]" if rows[0].when else ""
        if targets == {None}:
            outcome = "raises a StateError and changes nothing"
        elif len(targets) > 1:
            outcome = "leaves the state as it is"
        else:
            outcome = f"leads to {rows[0].target}"
        yield rule, f"While {sources}, {rows[0].method}() {outcome}{condition}."


_SENTENCES: Final = {
    Subject.ENVIRONMENT: {
        "ENV-I1": "The state is always one of created, ready, terminated, truncated and closed.",
        "ENV-I2": "While ready there is an agent, and its orientation lies in [0, 360).",
        "ENV-I3": "Once closed, every call but close() raises a StateError.",
        "ENV-I4": "The episode count is never negative and goes up with every reset.",
        "ENV-I5": "The action processor, the observation model, the reward function and the plume are always there.",
        "ENV-I6": "The step count is never negative and starts again at 0 with each episode.",
        "ENV-I7": "While ready, the step count does not exceed the maximum.",
        "ENV-I8": "The episode count never goes down, whatever is called.",
        "ENV-I9": "The seed is None or an integer in [0, 2^31).",
        "ENV-INIT-P1": "A configuration that does not resolve to parts is refused.",
        "ENV-INIT-P2": "An injected part without the members of its Protocol is refused.",
        "ENV-INIT-P3": "A grid needs a positive width and a positive height.",
        "ENV-INIT-P4": "The maximum of steps is positive.",
        "ENV-INIT-P5": "The goal radius is positive and finite.",
        "ENV-INIT-P6": "The render mode is None or one that the environment lists.",
        "ENV-INIT-C1": "A new environment is in the state created.",
        "ENV-INIT-C2": "A new environment has started no episode.",
        "ENV-INIT-C3": "A new environment has taken no step.",
        "ENV-INIT-C4": "A new environment has all its parts, and they satisfy their Protocols.",
        "ENV-INIT-C5": "The action space is the very one of the action processor.",
        "ENV-INIT-C6": "The observation space is the very one of the observation model.",
        "ENV-INIT-C7": "A new environment has no agent yet.",
        "ENV-RESET-P1": "reset() on a closed environment raises a StateError.",
        "ENV-RESET-P2": "A seed is None or an integer in [0, 2^31); anything else is refused.",
        "ENV-RESET-P3": "Options are None or a dict; anything else is refused.",
        "ENV-RESET-C1": "After reset() the environment is ready.",
        "ENV-RESET-C2": "After reset() the step count is 0.",
        "ENV-RESET-C3": "reset() adds exactly one to the episode count.",
        "ENV-RESET-C4": "After reset() the agent has taken no step, has no reward and has not reached the goal.",
        "ENV-RESET-C5": "After reset() the seed is the one given, or a generated one that replays the episode.",
        "ENV-RESET-C6": "reset() returns an observation of the present state, inside the space, and an info with seed and episode.",
        "ENV-RESET-D1": "Two environments reset with the same seed show the same first observation.",
        "ENV-STEP-P1": "step() anywhere but in the state ready raises a StateError.",
        "ENV-STEP-P2": "An action that is not legal is refused.",
        "ENV-STEP-C1": "step() returns observation, reward, terminated, truncated and info.",
        "ENV-STEP-C2": "The observation lies in the observation space.",
        "ENV-STEP-C3": "The reward is a finite number, the one that the reward function gives for the step.",
        "ENV-STEP-C4": "terminated is True or False.",
        "ENV-STEP-C5": "truncated is True or False.",
        "ENV-STEP-C6": "The info is a dict with text keys; step count, total reward and goal reached agree with the agent.",
        "ENV-STEP-C7": "step() adds exactly one to the step count.",
        "ENV-STEP-C8": "After step() the state is ready, terminated or truncated.",
        "ENV-STEP-D1": "The same seed and the same actions give the same observations, rewards and flags.",
        "ENV-CLOSE-C1": "After close() the state is closed.",
        "ENV-CLOSE-C2": "close() releases what the environment holds.",
        "ENV-CLOSE-C3": "After close() every other call raises a StateError.",
        "ENV-CLOSE-I1": "close() can be called in any state and again and again, and never raises.",
        "ENV-RENDER-P1": "render() before the first reset or after close() raises a StateError.",
        "ENV-RENDER-P2": "render() without a render mode warns and returns None.",
        "ENV-RENDER-C1": "In the mode rgb_array render() returns a uint8 array of shape (height, width, 3), and changes nothing.",
        "ENV-RENDER-C2": "In the mode human render() shows a picture and returns None.",
        "ENV-ATOMIC": "A step that raises changes nothing: the episode goes on as if it had not been called.",
        **dict(_iterate_lifecycle_sentences()),
    },
    Subject.ACTION_PROCESSOR: {
        "ACT-SPACE-C1": "The action space is a Gymnasium space.",
        "ACT-SPACE-C2": "The action space is the same instance every time.",
        "ACT-SPACE-C3": "Every member of the action space can be processed.",
        "ACT-PROC-P1": "An action outside the action space is refused with a ValueError.",
        "ACT-PROC-P2": "Something that is no agent state is refused.",
        "ACT-PROC-P3": "A position off the grid is refused, left alone or brought back, never moved to another one off the grid.",
        "ACT-PROC-C1": "The result is an agent state with whole coordinates and an orientation in [0, 360).",
        "ACT-PROC-C2": "The result lies on the grid.",
        "ACT-PROC-C3": "Asked twice, the processor gives the same result.",
        "ACT-PROC-C4": "The result is a new value, not the state that came in.",
        "ACT-1": "Boundary safety: no action leads off the grid from any cell, the corners and edges included.",
        "ACT-2": "Determinism: the result depends on action, state and grid alone, not on which processor of the kind is asked.",
        "ACT-3": "Purity: action, state and grid stay as they were, and earlier calls leave no trace in later ones.",
        "ACT-4": "A field that an action does not change is kept: step count, total reward and goal reached.",
        "ACT-VALID": "validate_action() returns a plain bool that agrees with the action space.",
        "ACT-META": "get_metadata() returns a type, parameters and a movement model.",
    },
    Subject.SENSOR: {
        "SENSOR-1": "The observation space is a Gymnasium space, the same instance every time.",
        "SENSOR-2": "Every observation lies in the observation space.",
        "SENSOR-3": "The same state gives the same observation, also from another sensor of the kind.",
        "SENSOR-4": "Observing leaves the environment's state as it was.",
        "SENSOR-5": "Every observation is a fresh array, shared with no other observation and no part of the state.",
        "SENSOR-6": "get_metadata() returns a type and parameters.",
        "SENSOR-7": "A sensor that remembers leaves the memory it was given as it was, hands out no array of it, and both ways to ask agree.",
    },
    Subject.REWARD: {
        "REWARD-1": "The reward is a real number.",
        "REWARD-2": "The reward is finite.",
        "REWARD-3": "The same step gives the same reward, also from another reward function of the kind.",
        "REWARD-4": "Valuing a step changes neither the states nor the field nor later answers.",
        "REWARD-5": "get_metadata() returns a type and parameters.",
    },
    Subject.FIELD: {
        "FIELD-1": "The field is a float64 array of shape (height, width).",
        "FIELD-2": "All values are finite and lie in [0, 1].",
        "FIELD-3": "The array is read-only.",
        "FIELD-4": "sample() returns what the array holds, as a float.",
        "FIELD-5": "Looking at a field does not change it.",
        "FIELD-6": "A plume that varies is the same for the same seed.",
        "FIELD-7": "Advancing a plume leaves the field it starts from as it was.",
        "FIELD-8": "Every instant of a plume covers the grid that the plume names.",
        "FIELD-SAMPLE-P1": "A sample off the grid is an IndexError.",
    },
    Subject.COLUMN_POPPER: {
        "POP-INIT-P1": "number_pool is one or more different integers from 1 to 9; anything else is refused.",
        "POP-INIT-P2": "strict_invalid and include_time_left_norm are True or False.",
        "POP-INIT-P3": "duration_ms and action_ms are whole milliseconds, from 1 to 1 000 000 000.",
        "POP-INIT-P4": "fall_curve is pairs (from_ms, interval_ms), the first from 0, each later than the one before.",
        "POP-INIT-P5": "manual_fall is one_row or fast_forward.",
        "POP-INIT-P6": "reward_preset is the name of a preset or a table of finite numbers with known rows.",
        "POP-INIT-P7": "height is from 1 to 64, columns from 1 to 16; SpecKitAI/ColumnPopper-v1 has 12 x 3 and nothing else.",
        "POP-SPACE-1": "The board is Box(0, 9, (12, 3), int32), or of the height and the columns that were asked for.",
        "POP-SPACE-2": "The selection is Box(0, 9, (2,), int32).",
        "POP-SPACE-3": "There is a time_left_norm, Box(0, 1, (1,), float32), if it was asked for, and nothing else besides.",
        "POP-SPACE-4": "The action space is Discrete(4): one action for each column, and the manual fall.",
        "POP-RESET-P1": "The option board has the board's shape, numbers of the pool and no hole; anything else is refused.",
        "POP-RESET-P2": "The option selection names a column with a block, or what is observed of one; anything else is refused.",
        "POP-RESET-C1": "reset() shows one fall: row 0 is full, the rest is empty, nothing is selected.",
        "POP-RESET-C2": "reset() with the options board and selection shows exactly these.",
        "POP-I1": "Every block is a number of number_pool, by default 1, 2 or 3.",
        "POP-I2": "Every column hangs from the top without a hole.",
        "POP-I3": "The selection is [0, 0], or [1, value] with the value of a column's last block.",
        "POP-PICK": "With nothing held, a column's action selects its last block, which stays on the board.",
        "POP-PLACE": "With a block held, another column's action moves the block directly under that column and lets go.",
        "POP-PUTBACK": "With a block held, its own column's action lets go and changes nothing else, unless three equal blocks pop.",
        "POP-POP": "A run of three or more at the end of the column where a block was let go pops, in whole triples.",
        "POP-CASCADE": "A pop sets off no other pop.",
        "POP-NOOP": "A pick on an empty column, or a placement on a full one, changes nothing but the clock.",
        "POP-DROP": "With strict_invalid a placement on a full column ends the game, and a pick on an empty one does not.",
        "POP-SPAWN-1": "A number that falls upon two equal ones is another, if the pool has another.",
        "POP-FALL-1": "Without a manual fall, rows fall at 3, 6, ... 18, 20, 22, ... 40, 41, ... 60 seconds.",
        "POP-FALL-2": "A manual fall is exactly one fall, and the wait for the next one starts anew.",
        "POP-FALL-3": "A fall moves every column down by one row, puts a new block on each, and a held block falls along.",
        "POP-FALL-4": "A fall never pops anything.",
        "POP-FALL-5": "With fast_forward a manual fall takes the clock to the next scheduled fall.",
        "POP-FALL-6": "The info's fall_interval is 3 seconds, from 20 seconds on 2, from 40 seconds on 1.",
        "POP-OVERFLOW": "A fall while a column is full ends the game as terminated, and the board stays.",
        "POP-TIME": "After 60 seconds, which are 600 steps, and never before, the game is truncated.",
        "POP-TIME-LEFT": "The info's time_left starts at 60 seconds, and every step takes a tenth.",
        "POP-TIME-NORM": "The observed time_left_norm is the share of the time that is left.",
        "POP-END": "A game is never terminated and truncated at once: a fall without room comes before the clock.",
        "POP-POPS": "The info's pops_this_step is the number of cells that the step removed.",
        "POP-SCORE": "The info's score starts at 0 and grows by 3 for every cell that pops.",
        "POP-REWARD": "The reward is +1 for a valid action, +3 for a popped cell, -0.01 for a step, -0.1 for an empty pick, "
        "-1 for a full-column drop or an overflow, -0.5 for time-up.",
        "POP-REWARD-PARTS": "The info's reward_parts add up to the reward.",
        "POP-INFO": "The info has score, time_left, pops_this_step, fall_interval, seed and version.",
        "POP-SEED": "The info's seed is the one given, or one that replays this very game.",
        "POP-FAULT": "The info's fault is overflow or invalid_full_drop when the game was lost that way, else None.",
        "POP-MASK": "The info's action_mask is an int8 array with a 1 for every action that is valid now.",
        "POP-FRESH": "An observation is nobody's else: no later step changes it, and writing to it changes no later step.",
    },
}

CLAUSES: Final[Mapping[str, Clause]] = MappingProxyType(
    {
        name: Clause(name, sentence, subject)
        for subject, sentences in _SENTENCES.items()
        for name, sentence in sentences.items()
    }
)


def list_clauses(subject: Subject) -> tuple[Clause, ...]:
    """Return the clauses that speak of `subject`, in the order of the contract."""
    return tuple(clause for clause in CLAUSES.values() if clause.subject is subject)
