"""The execution graph: vertices, subtasks and attempts of one job, their states, and the form they are archived in."""
