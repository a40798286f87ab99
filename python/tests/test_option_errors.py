"""Options that are wrong: which, and the remedy."""

import pytest

import hoplo
from hoplo.exceptions import HoploError

NODE = None


@hoplo.remote
def pid():
    return 0


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"num_cpu": 1}, TypeError, "no option 'num_cpu'; did you mean 'num_cpus'"),
        ({"num_return": 1}, TypeError, "did you mean 'num_returns'"),
        ({"zzz": 1}, TypeError, "no option 'zzz'; the options are num_cpus"),
        ({"num_cpus": -1}, ValueError, "num_cpus must be 0 or more, not -1"),
        ({"num_cpus": "2"}, TypeError, "num_cpus must be a number"),
        ({"num_cpus": float("nan")}, ValueError, "finite"),
        ({"num_cpus": 0.00001}, ValueError, r"at least 0\.0001"),
        ({"num_cpus": 10**400}, ValueError, r"num_cpus must be 1e\+14 or less, not 10000"),
        ({"num_cpus": -(10**5000)}, ValueError, "num_cpus must be 0 or more, not a number of thou"),
        ({"memory": 1e30}, ValueError, r"memory must be 1e\+14 or less, not 1e\+30"),
        ({"resources": {"disk": 10**400}}, ValueError, r"\['disk'\] must be 1e\+14 or less"),
        ({"num_gpus": 1.5}, ValueError, "whole number"),
        ({"memory": 0.5}, ValueError, "in bytes"),
        ({"resources": ["disk"]}, TypeError, "must be a dict such as"),
        ({"resources": {"disk": -1}}, ValueError, r"resources\['disk'\] must be 0 or more"),
        ({"resources": {"CPU": 1}}, ValueError, "use num_cpus= for it"),
        ({"resources": {"GPU": 1}}, ValueError, "use num_gpus= for it"),
        ({"resources": {1: 1}}, TypeError, "names as its keys"),
        ({"resources": {"\ud800": 1}}, ValueError, "the name of a resource must be text"),
        ({"num_returns": -1}, ValueError, "num_returns must be 0 or more"),
        ({"num_returns": 70_000}, ValueError, "65535 or less.*use 'streaming'"),
        ({"num_returns": "many"}, ValueError, "whole number or 'streaming'"),
        ({"num_returns": 1.5}, TypeError, "whole number"),
        ({"max_retries": -2}, ValueError, "-1 means any number"),
        ({"max_retries": 10**30}, ValueError, "max_retries must be 9223372036854775807 or less"),
        ({"max_retries": -(10**5000)}, ValueError, "max_retries must be -1 or more"),
        ({"max_retries": True}, TypeError, "whole number"),
        ({"retry_exceptions": 3}, TypeError, "True, False or a list of exception types"),
        ({"retry_exceptions": [int]}, TypeError, "exception types only"),
        ({"max_calls": -1}, ValueError, "0 means any number"),
        ({"name": ""}, ValueError, "must not be empty"),
        ({"name": 3}, TypeError, "name must be a str"),
        ({"name": "x" * 600}, ValueError, "512 characters or less"),
        ({"name": "a\udcff"}, ValueError, r"name must be text .* has '\\udcff' at place 1"),
        ({"label_selector": {"a": "\ud800"}}, ValueError, r"label_selector\['a'\] must be text"),
        ({"label_selector": {"": "a"}}, ValueError, "must not have an empty label"),
        ({"label_selector": {"a": 3}}, TypeError, "label_selector must be a dict of str to str"),
        (
            {"label_selector": {"a": ""}},
            ValueError,
            r"'!in\(a,b\)', its values not empty and without .*, not ''",
        ),
        ({"label_selector": {"a": "in(b,)"}}, ValueError, "its values not empty"),
        ({"label_selector": {"a": "!"}}, ValueError, "its values not empty"),
        ({"label_selector": {"a": "in(b"}}, ValueError, "its values not empty"),
        ({"label_selector": {"a": "!!b"}}, ValueError, "its values not empty"),
        ({"label_selector": {f"a{i}": "b" for i in range(65)}}, ValueError, "64 labels or less"),
        ({"fallback_strategy": {}}, TypeError, "must be a list such as"),
        ({"fallback_strategy": ["a"]}, TypeError, r"fallback_strategy\[0\] must be a dict such as"),
        ({"fallback_strategy": [{"zone": "a"}]}, ValueError, "the one key 'label_selector'"),
        ({"fallback_strategy": [{"label_selector": {}}]}, ValueError, "needs a label_selector"),
        ({"scheduling_strategy": "FAR"}, ValueError, "'DEFAULT', 'SPREAD' or a strategy of"),
        ({"scheduling_strategy": 3}, TypeError, "not int"),
        ({"_generator_backpressure_num_objects": 0}, ValueError, "not 0"),
        ({"runtime_env": {"env_var": {}}}, TypeError, "did you mean 'env_vars'"),
        ({"max_restarts": 1}, TypeError, "no option 'max_restarts'"),
    ],
)
def test_a_wrong_option_of_a_task(options, error, text):
    with pytest.raises(error, match=text):
        pid.options(**options)
    with pytest.raises(error, match=text):
        hoplo.remote(**options)(lambda: None)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"max_restart": 1}, TypeError, "did you mean 'max_restarts'"),
        ({"max_restarts": -2}, ValueError, "-1 means any number"),
        ({"max_concurrency": 0}, ValueError, "1 or more"),
        ({"max_concurrency": 10**6}, ValueError, "10000 or less"),
        ({"concurrency_groups": {"io": 0}}, ValueError, r"concurrency_groups\['io'\]"),
        ({"concurrency_groups": ["io"]}, TypeError, "must be a dict such as"),
        ({"max_pending_calls": 0}, ValueError, "not 0"),
        ({"lifetime": "long"}, ValueError, "'detached'"),
        ({"get_if_exists": True}, ValueError, r"needs a name: write name='\.\.\.'"),
        ({"get_if_exists": 1, "name": "x"}, TypeError, "True or False"),
        ({"namespace": ""}, ValueError, "must not be empty"),
        ({"namespace": "\ud800"}, ValueError, "namespace must be text that UTF-8 can hold"),
        ({"concurrency_groups": {"io": 10**30}}, ValueError, r"\['io'\] must be 10000 or less"),
        ({"max_pending_calls": 10**30}, ValueError, "max_pending_calls must be"),
        ({"max_retries": 1}, TypeError, "no option 'max_retries'"),
        ({"num_returns": 2}, TypeError, "no option 'num_returns'"),
    ],
)
def test_a_wrong_option_of_an_actor(options, error, text):
    @hoplo.remote
    class Empty:
        pass

    with pytest.raises(error, match=text):
        Empty.options(**options)


def test_a_wrong_option_of_a_method():
    with pytest.raises(TypeError, match="a method has no option 'num_cpus'"):
        hoplo.method(num_cpus=1)
    with pytest.raises(ValueError, match="num_returns"):
        hoplo.method(num_returns=-1)

    @hoplo.remote
    class Grouped:
        @hoplo.method(concurrency_group="io")
        def read(self):
            pass

    with pytest.raises(ValueError, match=r"'io'.*add it with concurrency_groups=\{'io': 1\}"):
        Grouped.remote()


def test_a_wrong_option_of_init_is_named_before_anything_starts():
    for options, text in [
        ({"num_gpus": 1.5}, "num_gpus of a node must be a whole number, not 1.5"),
        ({"memory": 10**400}, r"memory must be 1e\+14 or less"),
        ({"object_store_memory": 10**30}, "object_store_memory must be"),
        ({"namespace": "\ud800"}, "namespace must be text"),
    ]:
        with pytest.raises(ValueError, match=text):
            hoplo.init(**options)
    with pytest.raises(ValueError, match="name must be text"):
        hoplo.get_actor("\ud800")
    assert not hoplo.is_initialized()


def test_a_timeout_beyond_all_floats_is_for_ever_and_what_is_no_number_is_refused(fresh_node):
    fresh_node(num_cpus=1)
    assert hoplo.get(pid.remote(), timeout=10**400) == 0
    assert hoplo.wait([pid.remote()], timeout=10**400)[1] == []
    for act in (
        lambda: hoplo.get(pid.remote(), timeout="1"),
        lambda: hoplo.wait([pid.remote()], timeout="1"),
    ):
        with pytest.raises(TypeError, match="timeout must be a number of seconds or None, not '1'"):
            act()
    with pytest.raises(ValueError, match="timeout must be 0 or more seconds, not -1000"):
        hoplo.get(pid.remote(), timeout=-(10**400))


def test_every_error_of_hoplo_has_one_base():
    for name in hoplo.exceptions.__all__:
        kind = getattr(hoplo.exceptions, name)
        assert issubclass(kind, HoploError) or name == "RemoteErrorStandIn"
        assert kind.__doc__
