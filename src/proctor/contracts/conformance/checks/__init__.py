"""The checks of the clauses, by what they speak of; each module has a table `CHECKS` of clause ids."""
