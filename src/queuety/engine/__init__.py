"""The pure engine: events in, effects out. No clock, no randomness, no SQL, no user code."""
