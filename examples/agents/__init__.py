"""A planner, executors, a writer and a person who decides: `python -m examples.agents`."""
