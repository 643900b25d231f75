"""Column Popper: blocks hang in columns and fall; three equal ones at an open end pop."""
