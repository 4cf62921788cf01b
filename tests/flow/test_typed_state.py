"""Typed state: a handler's annotated parameter receives an object, and objects may be returned."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, TypedDict
from uuid import UUID

import pytest
from pydantic import BaseModel

from queuety import Queuety, WorkflowStatus, errors, job, step
from tests.support.flowing import note, notes, status_of


class Color(Enum):
    RED = "red"


class Order(BaseModel):
    id: UUID
    total: Decimal
    placed: datetime
    color: Color = Color.RED
    lines: list[str] = []


@dataclass
class Shipment:
    order: str
    due: date
    weights: tuple[float, ...] = ()
    tags: set[str] = field(default_factory=set)


class Totals(TypedDict):
    count: int
    sum: float


class Extra(TypedDict, total=False):
    note: str


ORDER: dict[str, Any] = {
    "id": "12345678-1234-5678-1234-567812345678",
    "total": "12.50",
    "placed": "2026-01-01T00:00:00Z",
}


@step
def ships(order: Order) -> Shipment:
    assert isinstance(order.total, Decimal)
    assert order.placed == datetime(2026, 1, 1, tzinfo=UTC)
    return Shipment(order=str(order.id), due=date(2026, 1, 2), weights=(1.5, 2.0), tags={"fragile"})


@step
async def weighs(shipment: Shipment) -> Totals:
    assert shipment.due == date(2026, 1, 2)
    assert shipment.weights == (1.5, 2.0)
    assert shipment.tags == {"fragile"}
    return {"count": len(shipment.weights), "sum": sum(shipment.weights)}


@step
def reports(totals: Totals) -> Order:
    assert totals["sum"] == 3.5
    return Order(**ORDER, lines=[f"{totals['count']} parcels"])


@step(max_attempts=1)
def wants_an_order(order: Order) -> None:
    note(order)


@step(max_attempts=1)
def returns_what_no_class_knows(state: dict[str, Any]) -> Any:
    return Shipment(order="x", due=object())  # type: ignore[arg-type]


@job
def bill(order: Order, copies: int = 1) -> None:
    note((type(order).__name__, order.total, copies))


def test_models_dataclasses_and_typed_dicts_are_handed_from_step_to_step(app: Queuety) -> None:
    run = app.workflow("typed").then(ships).then(weighs).then(reports).dispatch(ORDER)
    app.run_until_idle()
    done = status_of(app, run)
    assert (done.status, done.error_message) == (WorkflowStatus.COMPLETED, None)
    assert done.state == {
        **ORDER,
        "order": ORDER["id"],
        "due": "2026-01-02",
        "weights": [1.5, 2.0],
        "tags": ["fragile"],
        "count": 2,
        "sum": 3.5,
        "color": "red",
        "lines": ["2 parcels"],
    }


def test_an_object_may_be_the_payload(app: Queuety) -> None:
    run = app.workflow("typed").then(ships).dispatch(Order(**ORDER))
    app.run_until_idle()
    assert status_of(app, run).status is WorkflowStatus.COMPLETED


def test_a_state_that_does_not_fit_fails_the_step_with_a_message_that_names_the_field(app: Queuety) -> None:
    run = app.workflow("typed").then(wants_an_order).dispatch({**ORDER, "total": "much"})
    app.run_until_idle()
    failed = status_of(app, run)
    assert failed.status is WorkflowStatus.FAILED
    assert "total" in (failed.error_message or "")
    assert "Order" in (failed.error_message or "")
    assert notes == []


def test_an_object_that_holds_what_json_cannot_fails_the_step(app: Queuety) -> None:
    run = app.workflow("typed").then(returns_what_no_class_knows).dispatch()
    app.run_until_idle()
    failed = status_of(app, run)
    assert (failed.status, failed.state) == (WorkflowStatus.FAILED, {})
    assert "Shipment" in (failed.error_message or "")


def test_a_jobs_fields_are_typed_too_and_checked_when_it_is_dispatched(app: Queuety) -> None:
    app.dispatch(bill, {"order": ORDER, "copies": 2})
    with pytest.raises(errors.PayloadError, match="order"):
        app.dispatch(bill, {"order": {**ORDER, "placed": "soon"}})
    assert app.run_until_idle() == 1
    assert notes == [("Order", Decimal("12.50"), 2)]
