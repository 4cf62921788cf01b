"""Real clusters, made for the test and killed in the middle of a load that has every kind of step."""
