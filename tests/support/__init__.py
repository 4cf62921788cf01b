"""What several tests share; no assertion lives here that a test should make itself."""
