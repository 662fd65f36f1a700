"""placeholder"""

MUTANTS: dict = {}
