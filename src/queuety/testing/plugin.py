"""The pytest plugin that is loaded wherever Queuety is installed: fixtures for users' tests."""
