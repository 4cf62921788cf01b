"""Stands in for a language model: the same answer to the same question, and no network."""

import time
from collections.abc import Iterator


class Model:
    """Put the client of a real one here. `pause_s` is how long it thinks."""

    def __init__(self, pause_s: float = 0.3) -> None:
        self.pause_s = pause_s

    def plan(self, topic: str) -> list[str]:
        """What must be found out about the topic."""
        return [f"what {topic} need", f"what {topic} cost", f"who looks after {topic}"]

    def look_up(self, task: str) -> str:
        """What is found."""
        time.sleep(self.pause_s)
        return f"Of {task} much is known."

    def write(self, topic: str, findings: list[str], note: str | None, so_far: list[str]) -> Iterator[str]:
        """An article, sentence by sentence; it goes on after those that are there."""
        kept = findings[:1] if note == "shorter, please" else findings
        article = [f"This is about {topic}.", *kept, "That is all."]
        for sentence in article[len(so_far) :]:
            time.sleep(self.pause_s)
            yield sentence
