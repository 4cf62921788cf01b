"""What happens next, decided purely: no clock, no random, no SQL, no await, no logging, no user code.

`decide.py` is the door: a workflow, its definition and an event in, the workflow after it and the effects to write out.
`course.py` leaves, enters and fails steps; `commanded.py` is what people ask for; `cleanup.py` what runs after the end;
`jobs.py` is the same for jobs without a workflow; `kinds/` holds one file per kind of step. Values are shared, never
changed: a state that comes back may hold parts of the one that came in.
"""
