"""What must hold: the lifecycle, the component Protocols, the clauses, and the checks that a clause is kept."""
