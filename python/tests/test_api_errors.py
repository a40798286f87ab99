"""Wrong types and values: an error at once, with the remedy in its text."""

import pytest

import hoplo


@hoplo.remote
def f(x, y=1):
    return x + y


@hoplo.remote
class Counter:
    def __init__(self, start):
        self.value = start

    def add(self, amount):
        self.value += amount
        return self.value


@pytest.fixture(scope="module")
def counter():
    return Counter.remote(0)


# ------------------------------------------------------------------------------------ get, put


@pytest.mark.parametrize("wrong", [3, None, "text", b"", object(), 1.5])
def test_get_of_what_is_no_ref(wrong):
    with pytest.raises(TypeError, match=r"get was given .* not an ObjectRef.*\.remote\(\)"):
        hoplo.get(wrong)


def test_get_of_a_function_an_actor_or_a_method(counter):
    with pytest.raises(TypeError, match=r"call it first: f\.remote\(\)"):
        hoplo.get(f)
    with pytest.raises(TypeError, match=r"that is an actor; call one of its methods"):
        hoplo.get(counter)
    with pytest.raises(TypeError, match=r"call it first: add\.remote\(\)"):
        hoplo.get(counter.add)


@pytest.mark.parametrize("kind", [set, frozenset, dict.fromkeys])
def test_get_of_other_containers(kind):
    with pytest.raises(TypeError, match="give it one ref, or a list of them"):
        hoplo.get(kind([hoplo.put(1)]))


def test_get_of_a_list_with_something_else_in_it():
    with pytest.raises(TypeError, match=r"get was given 3 \(int\)"):
        hoplo.get([hoplo.put(1), 3])
    with pytest.raises(TypeError, match="not an ObjectRef"):
        hoplo.get([[hoplo.put(1)]])


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_timeout_below_zero(timeout):
    with pytest.raises(ValueError, match="timeout must be 0 or more"):
        hoplo.get(hoplo.put(1), timeout=timeout)
    with pytest.raises(ValueError, match="timeout must be 0 or more"):
        hoplo.wait([hoplo.put(1)], timeout=timeout)


@pytest.mark.parametrize("timeout", ["1", [1], object()])
def test_a_timeout_that_is_no_number(timeout):
    with pytest.raises(TypeError):
        hoplo.get(hoplo.put(1), timeout=timeout)
    with pytest.raises(TypeError, match="timeout must be a number of seconds"):
        hoplo.wait([hoplo.put(1)], timeout=timeout)


def test_put_of_a_ref():
    with pytest.raises(TypeError, match=r"wrap it in a list: hoplo\.put\(\[ref\]\)"):
        hoplo.put(hoplo.put(1))


@pytest.mark.parametrize("wrong", [0, -1, 9, 1 << 70])
def test_put_with_too_few_or_too_many_copies(wrong):
    limit = "8 or less" if wrong > 1 else "1 or more"
    with pytest.raises(ValueError, match=rf"copies must be {limit}, not {wrong} \(so many nodes"):
        hoplo.put(1, copies=wrong)


@pytest.mark.parametrize("wrong", [True, 2.0, "2", [2], object()])
def test_put_with_copies_that_are_no_number(wrong):
    with pytest.raises(TypeError, match="copies must be a whole number, not"):
        hoplo.put(1, copies=wrong)


def test_put_with_copies_on_a_node_that_is_alone():
    for copies in (1, 2, 8):
        assert hoplo.get(hoplo.put([1], copies=copies)) == [1]
    with pytest.raises(TypeError, match="not an ObjectRef"):
        hoplo.put(hoplo.put(1), copies=2)


def test_a_ref_is_not_iterable_or_callable():
    ref = f.remote(1)
    with pytest.raises(TypeError, match="num_returns"):
        iter(ref)
    with pytest.raises(TypeError, match="num_returns"):
        _a, _b = ref


def test_empty_refuses_objects_and_negative_lengths():
    with pytest.raises(TypeError, match="plain data"):
        hoplo.empty(3, object)
    with pytest.raises(ValueError, match="0 or more"):
        hoplo.empty((2, -1))


# ------------------------------------------------------------------------------------ wait


def test_wait_for_doubles():
    ref = hoplo.put(1)
    with pytest.raises(ValueError, match=r"each ref once; write list\(dict\.fromkeys\(refs\)\)"):
        hoplo.wait([ref, ref])


def test_wait_for_one_ref_without_a_list():
    with pytest.raises(TypeError, match=r"write hoplo\.wait\(\[ref\]\)"):
        hoplo.wait(hoplo.put(1))


@pytest.mark.parametrize("wrong", [3, None, "refs", {1: 2}])
def test_wait_for_what_is_no_list(wrong):
    with pytest.raises(TypeError, match="wait takes a list of refs"):
        hoplo.wait(wrong)


def test_wait_for_what_is_no_ref(counter):
    with pytest.raises(TypeError, match=r"wait was given 3 \(int\)"):
        hoplo.wait([hoplo.put(1), 3])
    with pytest.raises(TypeError, match="that is an actor"):
        hoplo.wait([counter])


@pytest.mark.parametrize("num_returns", [0, -1, 2])
def test_wait_for_too_many_or_too_few(num_returns):
    with pytest.raises(ValueError, match="from 1 to the number of refs, 1"):
        hoplo.wait([hoplo.put(1)], num_returns=num_returns)


@pytest.mark.parametrize("num_returns", [1.0, "1", True, None])
def test_wait_for_what_is_no_number(num_returns):
    with pytest.raises(TypeError, match="num_returns must be a whole number"):
        hoplo.wait([hoplo.put(1)], num_returns=num_returns)


# ------------------------------------------------------------------------------------ calls


def test_calling_a_remote_function_directly():
    with pytest.raises(TypeError, match=r"f\.remote\("):
        f(1)


def test_calling_an_actor_class_or_a_method_directly(counter):
    with pytest.raises(TypeError, match=r"Counter\(\) makes no actor; call Counter\.remote\(\)"):
        Counter(1)
    with pytest.raises(TypeError, match=r"\.remote\("):
        counter.add(1)


def test_arguments_that_do_not_fit_raise_at_the_call(counter):
    with pytest.raises(TypeError, match=r"f\(x, y=\.\.\.\) does not take these arguments: missing"):
        f.remote()
    with pytest.raises(TypeError, match="too many positional"):
        f.remote(1, 2, 3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        f.remote(1, z=2)
    with pytest.raises(TypeError, match="missing a required argument: 'start'"):
        Counter.remote()
    with pytest.raises(TypeError, match="missing a required argument: 'amount'"):
        counter.add.remote()
    with pytest.raises(TypeError, match="too many positional"):
        counter.add.remote(1, 2)


def test_a_method_that_does_not_exist(counter):
    with pytest.raises(AttributeError, match="no method 'ad'; did you mean 'add'"):
        counter.ad.remote(1)
    with pytest.raises(AttributeError, match="value"):
        counter.value


def test_a_name_that_hoplo_does_not_have():
    with pytest.raises(AttributeError, match="did you mean 'get'"):
        hoplo.gett
    with pytest.raises(AttributeError, match="did you mean 'remote'"):
        hoplo.remot


# ------------------------------------------------------------------------------------ remote


@pytest.mark.parametrize("wrong", [3, "f", None, [f]])
def test_remote_of_what_is_no_function(wrong):
    with pytest.raises(TypeError, match="takes a function or a class"):
        hoplo.remote(wrong)


def test_remote_twice_or_with_nothing():
    with pytest.raises(TypeError, match=r"f is remote already; change options with \.options\(\)"):
        hoplo.remote(f)
    with pytest.raises(TypeError, match="Counter is remote already"):
        hoplo.remote(num_cpus=1)(Counter)
    with pytest.raises(TypeError, match=r"write @hoplo\.remote without brackets"):
        hoplo.remote()
    with pytest.raises(TypeError, match="options by name"):
        hoplo.remote(len, num_cpus=1)


def test_remote_of_a_coroutine_function():
    async def wait():
        pass

    with pytest.raises(ValueError, match=r"async def.*method\s+of an actor"):
        hoplo.remote(wait)


# ------------------------------------------------------------------------------------ others


def test_cancel_of_what_is_no_ref(counter):
    with pytest.raises(TypeError, match=r"use hoplo\.kill for an actor"):
        hoplo.cancel(counter)
    with pytest.raises(TypeError, match="cancel was given 3"):
        hoplo.cancel(3)
    with pytest.raises(TypeError, match="call it first"):
        hoplo.cancel(f)


def test_kill_of_what_is_no_actor():
    with pytest.raises(TypeError, match=r"use hoplo\.cancel for tasks"):
        hoplo.kill(hoplo.put(1))
    with pytest.raises(TypeError, match="kill takes an actor's handle"):
        hoplo.kill("name")


def test_an_actor_that_nobody_named():
    with pytest.raises(ValueError, match="nobody"):
        hoplo.get_actor("nobody")
    with pytest.raises(TypeError, match="name must be a str"):
        hoplo.get_actor(3)
    with pytest.raises(ValueError, match="must not be empty"):
        hoplo.get_actor("")
    named = Counter.options(name="the counter").remote(0)
    assert hoplo.get_actor("the counter") == named
    with pytest.raises(ValueError, match="the counter"):
        hoplo.get_actor("the counte")


def test_exit_actor_outside_of_an_actor():
    with pytest.raises(RuntimeError, match="does not run in one"):
        hoplo.exit_actor()


def test_init_twice():
    with pytest.raises(RuntimeError, match=r"call hoplo\.shutdown\(\) first"):
        hoplo.init()
    context = hoplo.init(ignore_reinit_error=True)
    assert context["session_dir"]
    assert hoplo.get(f.remote(1)) == 2
