"""The workflow: plan, research side by side, write, have it reviewed until it is good, publish."""

from pathlib import Path

from examples.agents.model import Model
from queuety import Queuety, StreamingStep, current, step

app = Queuety()  # QUEUETY_DATABASE_URL
model = Model()


def say(text):
    print(f"  [{current().step_name}] {text}", flush=True)


@step(timeout=60)
def plan(state):
    tasks = model.plan(state["topic"])
    say(f"{len(tasks)} tasks")
    return {"tasks": tasks}


@step(timeout=60, max_attempts=5)
def research(state):
    say(state["agent_task"])
    return {"finding": model.look_up(state["agent_task"])}


class Write(StreamingStep):
    """Every sentence is kept as it comes: what a dead worker has written is not written again."""

    def config(self):
        return {"timeout": 600, "backoff": [0]}

    def stream(self, state, existing_chunks):
        here = current()
        say(f"draft {here.iteration}, attempt {here.attempt}, goes on after {len(existing_chunks)} sentences")
        findings = [result["finding"] for result in state["agent_results"].values()]
        yield from model.write(state["topic"], findings, state.get("note"), existing_chunks)

    def on_complete(self, chunks, state):
        return {"title": state["topic"].title(), "article": " ".join(chunks)}


@step
def publish(state):
    # A service that publishes would be handed the key. Here it names the file: a second attempt changes nothing.
    file = Path(state["folder"], f"{current().idempotency_key}.txt")
    file.write_text(f"{state['title']}\n\n{state['article']}\n")
    say(file.name)
    return {"published": str(file)}


executor = app.workflow("executor").then(research, "research")

article = (
    app.workflow("article")
    .then(plan, "plan")
    .start_agents("tasks", executor, inherit_state=False, group_key="agents")
    .wait_for_agent_group()
    .then(Write, "write")
    .wait_for_decision(result_key=None, name="review")
    .repeat_until("write", "decision_outcome", "approved", max_iterations=3, name="until approved")
    .then(publish, "publish")
)
