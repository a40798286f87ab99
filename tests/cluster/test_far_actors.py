"""Actors that live on another node than those who call them."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import numpy as np
import pytest
from far import MIB, Counter, here
from machines import alive, until

import hoplo
from hoplo.exceptions import ActorDiedError, ActorUnavailableError


def on(far: Any, number: int, **options: Any) -> Any:
    return Counter.options(scheduling_strategy=far.on(number), num_cpus=0, **options)


# ------------------------------------------------------------------------------- errors


def test_a_constructor_that_fails_is_told_with_its_reason(far: Any) -> None:
    @hoplo.remote(num_cpus=0)
    class Fails:
        def __init__(self) -> None:
            raise ValueError("no such table")

        def work(self) -> int:
            return 1

    actor = Fails.options(scheduling_strategy=far.on(1)).remote()
    with pytest.raises(ActorDiedError, match="no such table"):
        hoplo.get(actor.work.remote(), timeout=20)


def test_a_method_that_raises_leaves_the_actor_as_it_is(far: Any) -> None:
    counter = on(far, 1).remote(5)
    with pytest.raises(TypeError):
        hoplo.get(counter.add.remote("x"), timeout=20)
    assert hoplo.get(counter.add.remote(1), timeout=20) == 6


def test_a_name_that_is_taken_on_another_node_is_refused(far: Any) -> None:
    first = on(far, 1, name="taken").remote()
    assert hoplo.get(first.add.remote(), timeout=20) == 1
    with pytest.raises(ValueError, match="taken"):
        hoplo.get(on(far, 2, name="taken").remote().add.remote(), timeout=20)


# ------------------------------------------------------------------------------- calls


@pytest.mark.parametrize("number", [0, 1, 2])
def test_an_actor_lives_on_the_node_that_it_was_made_for(far: Any, number: int) -> None:
    counter = on(far, number).remote(10)
    assert hoplo.get(counter.where.remote(), timeout=20) == far.ids[number]
    assert hoplo.get([counter.add.remote() for _ in range(3)], timeout=20) == [11, 12, 13]


def test_calls_run_in_the_order_in_which_they_were_made(far: Any) -> None:
    counter = on(far, 1).remote()
    refs = [counter.add.remote() for _ in range(2000)]
    assert hoplo.get(refs, timeout=30) == list(range(1, 2001))


def test_calls_made_before_the_actor_is_there_run_in_order(far: Any) -> None:
    @hoplo.remote
    def late() -> int:
        return 100

    start = late.options(scheduling_strategy=far.on(2)).remote()
    counter = on(far, 1).remote(start)
    refs = [counter.add.remote() for _ in range(20)]
    assert hoplo.get(refs, timeout=20) == list(range(101, 121))


def test_an_argument_that_is_not_ready_holds_up_what_comes_behind_it(far: Any, gate: Any) -> None:
    @hoplo.remote
    def held() -> Any:
        return gate.wait(10)

    counter = on(far, 1).remote()
    first = counter.add.remote(held.options(scheduling_strategy=far.on(2)).remote())
    second = counter.add.remote(1)
    assert hoplo.wait([second], timeout=0.1)[0] == []
    gate.open()
    assert hoplo.get([first, second], timeout=20) == [10, 11]


def test_large_values_in_and_out(far: Any) -> None:
    @hoplo.remote(num_cpus=0)
    class Store:
        def __init__(self) -> None:
            self.arrays: dict[int, Any] = {}

        def put(self, key: int, array: Any) -> int:
            self.arrays[key] = array
            return int(array.nbytes)

        def get(self, key: int) -> Any:
            return self.arrays[key]

    store = Store.options(scheduling_strategy=far.on(1)).remote()
    for key in range(5):
        array = np.full(MIB, key, np.uint8)
        assert hoplo.get(store.put.remote(key, array), timeout=20) == MIB
    for key in range(5):
        got = hoplo.get(store.get.remote(key), timeout=20)
        np.testing.assert_array_equal(got, np.full(MIB, key, np.uint8))


def test_a_method_that_is_a_generator(far: Any) -> None:
    @hoplo.remote(num_cpus=0)
    class Source:
        def count(self, n: int) -> Any:
            yield from range(n)

    source = Source.options(scheduling_strategy=far.on(2)).remote()
    assert [hoplo.get(ref) for ref in source.count.remote(50)] == list(range(50))


# ------------------------------------------------------------------------------- handles


@hoplo.remote
def adds(counter: Any, times: int) -> list[int]:
    return hoplo.get([counter.add.remote() for _ in range(times)])


@hoplo.remote(num_cpus=0)
class Caller:
    def __init__(self, target: Any) -> None:
        self.target = target

    def call(self, times: int) -> list[int]:
        return hoplo.get([self.target.add.remote() for _ in range(times)])

    def where(self) -> str:
        return here()


def test_a_handle_is_passed_to_a_task_on_another_node(far: Any) -> None:
    counter = on(far, 1).remote()
    for number in (0, 1, 2):
        got = hoplo.get(adds.options(scheduling_strategy=far.on(number)).remote(counter, 10))
        assert got == list(range(10 * number + 1, 10 * number + 11))


def test_an_actor_calls_an_actor_on_a_third_node(far: Any) -> None:
    counter = on(far, 2).remote()
    caller = Caller.options(scheduling_strategy=far.on(1)).remote(counter)
    assert hoplo.get(caller.where.remote(), timeout=20) == far.ids[1]
    assert hoplo.get(caller.call.remote(500), timeout=20) == list(range(1, 501))


def test_calls_of_many_callers_on_all_nodes_are_all_counted(far: Any) -> None:
    counter = on(far, 1).remote()
    strategies = [far.on(number) for number in range(3)]
    refs = [
        adds.options(scheduling_strategy=strategies[i % 3]).remote(counter, 100) for i in range(6)
    ]
    results = hoplo.get(refs, timeout=30)
    assert sorted(n for result in results for n in result) == list(range(1, 601))
    for result in results:
        assert result == sorted(result), "each caller's calls ran in order"


def test_a_handle_that_comes_back_inside_a_value(far: Any) -> None:
    @hoplo.remote
    def makes(strategy: Any) -> dict[str, Any]:
        counter = Counter.options(scheduling_strategy=strategy, num_cpus=0).remote(7)
        hoplo.get(counter.add.remote())
        return {"counter": counter}

    made = hoplo.get(makes.options(scheduling_strategy=far.on(1)).remote(far.on(2)), timeout=20)
    assert hoplo.get(made["counter"].add.remote(), timeout=20) == 9


# ------------------------------------------------------------------------------- names


def test_a_named_actor_is_found_from_every_node(far: Any) -> None:
    @hoplo.remote
    def asks(name: str) -> int:
        return hoplo.get(hoplo.get_actor(name).add.remote())

    counter = on(far, 1, name="found").remote()
    assert hoplo.get(counter.add.remote(), timeout=20) == 1
    for number in (0, 1, 2):
        ref = asks.options(scheduling_strategy=far.on(number)).remote("found")
        assert hoplo.get(ref, timeout=20) == number + 2


def test_get_if_exists_from_two_nodes_makes_one(far: Any) -> None:
    @hoplo.remote
    def pids() -> int:
        options = {"name": "only one", "get_if_exists": True, "num_cpus": 0}
        actor = Counter.options(lifetime="detached", **options).remote()
        return hoplo.get(actor.pid.remote())

    refs = [pids.options(scheduling_strategy=far.on(n % 3)).remote() for n in range(6)]
    assert len(set(hoplo.get(refs, timeout=20))) == 1
    hoplo.kill(hoplo.get_actor("only one"))


def test_a_name_is_free_again_once_its_actor_was_killed(far: Any) -> None:
    for number in (1, 2, 1):
        counter = on(far, number, name="again").remote()
        assert hoplo.get(counter.where.remote(), timeout=20) == far.ids[number]
        hoplo.kill(counter)

        def is_free() -> bool:
            try:
                hoplo.get_actor("again")
            except ValueError:
                return True
            return False

        until(is_free)


def test_a_detached_actor_outlives_its_driver(make_far: Any) -> None:
    far = make_far(2)
    source = """
    from far import Counter
    from hoplo.util.scheduling_strategies import NodeAffinitySchedulingStrategy
    with hoplo.init(address="auto", namespace="kept"):
        strategy = NodeAffinitySchedulingStrategy(sys.argv[1])
        options = dict(name="kept", lifetime="detached", num_cpus=0)
        counter = Counter.options(scheduling_strategy=strategy, **options).remote()
        say(hoplo.get(counter.add.remote()))
    """
    path = os.path.dirname(os.path.abspath(__file__))
    assert far.machines[0].run(source, far.ids[1], PYTHONPATH=path) == 1
    counter = hoplo.get_actor("kept", namespace="kept")
    assert hoplo.get(counter.add.remote(), timeout=20) == 2
    assert hoplo.get(counter.where.remote(), timeout=20) == far.ids[1]
    hoplo.kill(counter)


# ------------------------------------------------------------------------------- ends


def test_a_killed_actor_is_dead_for_all_who_have_its_handle(far: Any) -> None:
    counter = on(far, 1).remote()
    caller = Caller.options(scheduling_strategy=far.on(2)).remote(counter)
    assert hoplo.get(caller.call.remote(1), timeout=20) == [1]
    pid = hoplo.get(counter.pid.remote())
    hoplo.kill(counter)
    with pytest.raises(ActorDiedError):
        hoplo.get(counter.add.remote(), timeout=20)
    with pytest.raises(ActorDiedError):
        hoplo.get(caller.call.remote(1), timeout=20)
    until(lambda: not alive(pid))


def test_an_actor_without_handles_ends_wherever_it_is(far: Any) -> None:
    counter = on(far, 1).remote()
    pid = hoplo.get(counter.pid.remote(), timeout=20)
    del counter
    until(lambda: not alive(pid))


def test_the_last_handle_may_be_on_a_third_node(far: Any) -> None:
    counter = on(far, 1).remote()
    pid = hoplo.get(counter.pid.remote(), timeout=20)
    caller = Caller.options(scheduling_strategy=far.on(2)).remote(counter)
    assert hoplo.get(caller.call.remote(1), timeout=20) == [1]
    del counter
    assert hoplo.get(caller.call.remote(100), timeout=20)[-1] == 101
    assert alive(pid)
    hoplo.kill(caller)
    until(lambda: not alive(pid))


def test_an_actor_whose_process_is_killed_restarts_and_loses_no_place(far: Any) -> None:
    counter = on(far, 1, max_restarts=1, max_task_retries=1).remote()
    pid = hoplo.get(counter.pid.remote(), timeout=20)
    os.kill(pid, signal.SIGKILL)
    assert hoplo.get(counter.add.remote(), timeout=20) == 1, "it begins anew"
    assert hoplo.get(counter.pid.remote(), timeout=20) != pid
    os.kill(hoplo.get(counter.pid.remote()), signal.SIGKILL)

    def is_dead() -> bool:
        try:
            hoplo.get(counter.add.remote(), timeout=20)
        except ActorDiedError:
            return True
        except ActorUnavailableError:
            return False
        return False

    until(is_dead)


def test_calls_in_flight_when_the_process_is_killed_fail_and_none_hangs(far: Any) -> None:
    counter = on(far, 2).remote()
    pid = hoplo.get(counter.pid.remote(), timeout=20)
    refs = [counter.add.remote() for _ in range(1000)]
    os.kill(pid, signal.SIGKILL)
    refs += [counter.add.remote() for _ in range(100)]
    done = failed = 0
    for ref in refs:
        try:
            assert hoplo.get(ref, timeout=20) == done + 1, "those that ran are the first ones"
            done += 1
        except ActorDiedError:
            failed += 1
    assert done + failed == 1100
    assert failed >= 100


def test_hoplo_kill_with_restart(far: Any) -> None:
    counter = on(far, 1, max_restarts=1, max_task_retries=1).remote(5)
    pid = hoplo.get(counter.pid.remote(), timeout=20)
    hoplo.kill(counter, no_restart=False)
    assert hoplo.get(counter.add.remote(), timeout=20) == 6
    assert hoplo.get(counter.pid.remote(), timeout=20) != pid
    assert hoplo.get(counter.where.remote(), timeout=20) == far.ids[1]


# ------------------------------------------------------------------------------- many at once


def test_an_async_actor_serves_many_calls_at_once(far: Any) -> None:
    @hoplo.remote(num_cpus=0)
    class Meeting:
        def __init__(self, expected: int) -> None:
            self.expected, self.all_here = expected, asyncio.Event()
            self.count = 0

        async def arrive(self) -> int:
            self.count += 1
            if self.count == self.expected:
                self.all_here.set()
            await self.all_here.wait()
            return self.count

    meeting = Meeting.options(scheduling_strategy=far.on(1)).remote(100)
    assert hoplo.get([meeting.arrive.remote() for _ in range(100)], timeout=20) == [100] * 100


def test_concurrency_groups_do_not_wait_for_each_other(far: Any, gate: Any) -> None:
    @hoplo.remote(num_cpus=0, concurrency_groups={"slow": 1, "quick": 1})
    class Grouped:
        @hoplo.method(concurrency_group="slow")
        def waits(self) -> Any:
            return gate.wait("slow")

        @hoplo.method(concurrency_group="quick")
        def answers(self) -> str:
            return "quick"

    actor = Grouped.options(scheduling_strategy=far.on(2)).remote()
    slow = actor.waits.remote()
    until(lambda: gate.arrived() == 1)
    assert hoplo.get(actor.answers.remote(), timeout=20) == "quick"
    gate.open()
    assert hoplo.get(slow, timeout=20) == "slow"


def test_actors_all_over_the_cluster(far: Any) -> None:
    counters = [on(far, number % 3).remote(number) for number in range(24)]
    refs = [counter.add.remote(100) for counter in counters]
    assert hoplo.get(refs, timeout=60) == [100 + number for number in range(24)]
    places = hoplo.get([counter.where.remote() for counter in counters], timeout=20)
    assert places == [far.ids[number % 3] for number in range(24)]
