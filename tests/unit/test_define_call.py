"""How handlers are called: the state or the payload, the configuration, typed parameters."""

from __future__ import annotations

import asyncio
import datetime as dt
import enum
from dataclasses import dataclass, field
from typing import Any, TypedDict

import pydantic
import pytest

from queuety.define.call import Plan, check_payload
from queuety.define.marks import Job, Step, bind, job, step
from queuety.define.payloads import job_request, workflow_payload
from queuety.define.registry import Registry
from queuety.errors import DefinitionError, PayloadError
from queuety.model import HandlerRef, Json, Options


class Size(enum.Enum):
    SMALL = "s"


class Order(pydantic.BaseModel):
    id: int


@dataclass
class Receipt:
    total: int
    at: dt.date


class Stamped(TypedDict):
    at: dt.date


@step
def plain(state: dict[str, Any]) -> dict[str, Any]:
    return {"got": state}


@step
async def awaited(state: dict[str, Any], by: list[int]) -> dict[str, Any]:
    by.append(0)
    return {"by": by}


@step
def typed_step(order: Order, discount: int = 0) -> Receipt:
    return Receipt(order.id - discount, dt.date(2026, 1, 1))


@step
def stamped(state: Stamped) -> Stamped:
    return {"at": state["at"] + dt.timedelta(1)}


class Greeter(Step):
    made = 0

    def __init__(self, words: list[str]) -> None:
        Greeter.made += 1
        self.words = words

    async def handle(self, state: Order) -> dict[str, Any]:
        self.words.append(str(state.id))
        return {"said": self.words}


@job
def entire(payload: dict[str, Any]) -> str:
    return repr(payload)


@job
def whole(payload: dict[str, Any], *, prefix: str = "") -> str:
    return prefix + repr(payload)


@job
def whole_typed(payload: Order) -> Order:
    return payload


@job
def keyed(to: str, order: Order | None = None, copies: int = 1) -> Any:
    return to, order, copies


@job
def keyed_typed(order: Order) -> Any:
    return order


@job
def anything(**values: Any) -> Any:
    return values


@dataclass
class Parcel(Job):
    to: str
    size: Size = Size.SMALL
    due: dt.date | None = None
    labels: list[str] = field(default_factory=list)
    tries: int = 2

    def handle(self) -> Any:
        return self


@dataclass(frozen=True, slots=True)
class Simple(Job):
    to: str
    n: int = 1

    async def handle(self) -> Any:
        return self


def plan(handler: Any, **config: Json) -> Plan:
    return Registry().plan(f"{__name__}:{handler.__name__}", config)


def test_a_plain_step_is_called_itself() -> None:
    assert plan(plain).call is plain
    assert not plan(plain).is_async


def test_configuration_is_a_copy_for_every_attempt() -> None:
    given = plan(awaited, by=[1])
    assert given.is_async
    for _ in range(2):
        assert asyncio.run(given.call({})) == {"by": [1, 0]}


def test_a_class_is_made_anew_for_every_attempt() -> None:
    given = plan(Greeter, words=["hello"])
    assert given.is_async
    before = Greeter.made
    for _ in range(2):
        assert asyncio.run(given.call({"id": 3})) == {"said": ["hello", "3"]}
    assert Greeter.made == before + 2


def test_a_typed_state_is_read_and_a_typed_result_stored_as_json() -> None:
    given = plan(typed_step, discount=1)
    result = given.call({"id": 7, "other": "keys"})
    assert result == Receipt(6, dt.date(2026, 1, 1))
    assert given.output(result) == {"total": 6, "at": "2026-01-01"}
    with pytest.raises(PayloadError, match="state does not fit Order: id: Field required"):
        given.call({})
    assert plan(stamped).output(plan(stamped).call({"at": "2026-01-01"})) == {"at": "2026-01-02"}


def test_only_a_mapping_or_nothing_may_be_returned_from_a_step() -> None:
    output = plan(plain).output
    assert output(None) == {}
    assert output({"a": (1,)}) == {"a": [1]}
    for value in ([1], "x", 3, True, object()):
        with pytest.raises(PayloadError, match="result must be a mapping"):
            output(value)
    with pytest.raises(PayloadError, match=r"result\.at: a date is not JSON; use its isoformat"):
        output({"at": dt.date(2026, 1, 1)})
    with pytest.raises(PayloadError, match="more than the limit"):
        output({"a": "x" * 100}, max_bytes=50)
    assert plan(keyed).output(object()) == {}


@pytest.mark.parametrize(
    ("handler", "payload", "config", "result"),
    [
        (entire, {"a": 1}, {}, "{'a': 1}"),
        (entire, {"payload": 1}, {}, "{'payload': 1}"),
        (whole, {"prefix": 1}, {"prefix": "> "}, "> {'prefix': 1}"),
        (whole_typed, {"id": 1}, {}, Order(id=1)),
        (keyed, {"to": "x", "copies": 2}, {}, ("x", None, 2)),
        (keyed, {"copies": 2}, {"to": "y"}, ("y", None, 2)),
        (keyed_typed, {"order": {"id": 1}}, {}, Order(id=1)),
        (anything, {"a": 1, "b": [2]}, {"c": 3}, {"a": 1, "b": [2], "c": 3}),
        (Parcel, {"to": "x", "size": "s", "due": "2026-01-01"}, {}, Parcel("x", Size.SMALL, dt.date(2026, 1, 1))),
    ],
)
def test_a_job_gets_its_payload_whole_or_by_keys(
    handler: Any, payload: dict[str, Any], config: dict[str, Any], result: Any
) -> None:
    registry = Registry()
    name = f"{__name__}:{handler.__name__}"
    check_payload(registry.resolve(name), payload, config)
    assert registry.plan(name, config).call(payload) == result


@pytest.mark.parametrize(
    ("handler", "payload", "message"),
    [
        (keyed, {}, r"keyed\(to, order, copies\): missing a required argument: 'to'"),
        (keyed, {"to": "x", "cc": "y"}, "unexpected keyword argument 'cc'"),
        (bind(keyed, to="x"), {"to": "y"}, "bind already gives to"),
        (keyed_typed, {"order": {}}, r"payload\.order does not fit Order"),
        (whole_typed, {"id": "x"}, "payload does not fit Order"),
        (entire, [1], "payload must be a mapping"),
        (entire, {"at": dt.date(2026, 1, 1)}, r"payload\.at: a date"),
        (Parcel, {}, "missing a required argument: 'to'"),
        (Parcel, {"to": "x", "tries": 3}, "unexpected keyword argument 'tries'"),
        (Parcel, {"to": "x", "size": "xxl"}, "payload.size does not fit Size"),
    ],
)
def test_a_payload_that_does_not_fit_is_refused_when_dispatched(handler: Any, payload: Any, message: str) -> None:
    with pytest.raises(PayloadError, match=message):
        job_request(Registry(), handler, payload)


def test_a_job_instance_and_its_class_with_the_same_fields_are_the_same_request() -> None:
    registry = Registry()
    name = f"{__name__}:Parcel"
    by_instance = job_request(registry, Parcel("x", due=dt.date(2026, 1, 1)))
    assert by_instance == job_request(registry, Parcel, {"to": "x", "due": "2026-01-01"})
    assert by_instance.handler == HandlerRef(name)
    assert by_instance.payload == {"to": "x", "size": "s", "due": "2026-01-01", "labels": []}
    assert by_instance.options == Options(max_attempts=2)
    assert registry.plan(name).call(dict(by_instance.payload)) == Parcel("x", due=dt.date(2026, 1, 1))
    assert job_request(registry, Parcel("x", tries=5)).options == Options(max_attempts=5)
    with pytest.raises(DefinitionError, match="carries its payload"):
        job_request(registry, Parcel("x"), {"to": "y"})
    with pytest.raises(PayloadError, match=r"Parcel\.labels\[0\]: a set"):
        job_request(registry, Parcel("x", labels=[{1}]))  # type: ignore[list-item]


def test_a_job_class_may_be_async() -> None:
    assert asyncio.run(plan(Simple).call({"to": "x"})) == Simple("x")


def test_a_typed_object_may_be_the_payload() -> None:
    assert job_request(Registry(), entire, Order(id=1)).payload == {"id": 1}
    assert workflow_payload(Order(id=1)) == {"id": 1}
    assert workflow_payload(None) == {}


def test_a_job_of_another_service_is_queued_as_it_is() -> None:
    request = job_request(Registry(), "elsewhere.mail:send", {"to": "x"})
    assert request.handler == HandlerRef("elsewhere.mail:send")
    assert request.payload == {"to": "x"}


@pytest.mark.parametrize("payload", [{"_secret": 1}, {"_": 1}])
def test_a_reserved_key_in_a_workflows_payload_is_refused_by_name(payload: dict[str, Any]) -> None:
    with pytest.raises(PayloadError, match=rf"payload\.{next(iter(payload))}: keys that start with _ are reserved"):
        workflow_payload(payload)
