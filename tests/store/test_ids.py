"""Ids: known before they are written, and never given twice, whoever asks at once."""

from __future__ import annotations

import ast
import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from queuety.store.dialects import Limits
from queuety.store.door import Door
from tests.store.test_door import in_a_fork
from tests.support.databases import Database
from tests.support.hands import House, definition, single


def draw(url: str, count: int, answers: multiprocessing.SimpleQueue[list[int]]) -> None:
    door = Door.open(url, limits=Limits(patience_s=60))
    got: list[int] = []
    while len(got) < count:
        some = min(1 + len(got) % 97, count - len(got))
        got += door.write(lambda tx, some=some: tx.reserve(some))  # type: ignore[misc]
    door.close()
    answers.put(got)


def test_ids_are_unique_among_racing_processes(database: Database) -> None:
    processes, count = 20, 1000
    context = multiprocessing.get_context("fork")
    answers: multiprocessing.SimpleQueue[list[int]] = context.SimpleQueue()
    children = [context.Process(target=draw, args=(database.url, count, answers)) for _ in range(processes)]
    for child in children:
        child.start()
    drawn = [answers.get() for _ in children]
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * processes
    every = [number for each in drawn for number in each]
    assert len(set(every)) == len(every) == processes * count
    for each in drawn:
        assert each == sorted(each)


def test_a_transaction_gets_as_many_as_it_asks_for_in_order(house: House) -> None:
    def unit_of(count: int) -> list[int]:
        return house.door.write(lambda tx: tx.reserve(count))

    assert unit_of(0) == []
    first, second, third = unit_of(1), unit_of(5000), unit_of(3)
    every = first + second + third
    assert every == sorted(set(every))
    assert [len(first), len(second), len(third)] == [1, 5000, 3]


def test_many_threads_that_dispatch_at_once_do_not_wait_for_each_other_s_connection(database: Database) -> None:
    """Drawing ids takes a second connection while the first is held: a pool that is all in use must not lock up."""
    limits = Limits(pool_size=2, pool_timeout_s=5, patience_s=5)
    with House(database.url, limits=limits) as house:
        what = definition(single())
        house.definitions.ensure(house.door, what)
        threads = 12
        gate = threading.Barrier(threads)

        def work() -> list[int]:
            gate.wait()
            return [house.dispatch(what) for _ in range(10)]

        with ThreadPoolExecutor(threads) as pool:
            got = [future.result() for future in [pool.submit(work) for _ in range(threads)]]
        every = [run for each in got for run in each]
        assert len(set(every)) == len(every) == len(house.rows("workflows"))


def test_a_fork_whose_first_act_is_to_join_a_transaction_gives_no_id_of_its_parent(database: Database) -> None:
    engine = create_engine(database.url, poolclass=NullPool)
    door = Door.open(database.url)

    def join() -> list[int]:
        with engine.begin() as connection, door.joined(connection) as tx:
            return tx.reserve(3)

    try:
        for _ in range(5):  # the last block drawn is not used up
            door.write(lambda tx: tx.reserve(1))
        child = in_a_fork(join)
        parent = join()
        assert child == repr([number for number in ast.literal_eval(child) if number not in parent]), parent
    finally:
        door.close()
        engine.dispose()
