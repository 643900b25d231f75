"""Every row there is, in the order of the table; a new part of the project adds its table here."""

from bench.row import Row
from bench.rows import agents, attacks, control, judge, ledger, plume, popper, sandbox, viewer

ROWS: tuple[Row, ...] = (
    *plume.ROWS,
    *popper.ROWS,
    *control.ROWS,
    *judge.ROWS,
    *agents.ROWS,
    *sandbox.ROWS,
    *ledger.ROWS,
    *viewer.ROWS,
    *attacks.ROWS,
)
