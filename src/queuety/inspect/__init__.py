"""What people read about a run; reads only."""
