"""How tensors are pickled, told to a stand-in for torch, which few machines have."""

import sys
import types

import numpy as np
import pytest

from hoplo import _serialization

NODE = None


class Tensor:
    """As much of torch.Tensor as pickling looks at."""

    device = types.SimpleNamespace(type="cpu")
    requires_grad = False
    is_quantized = False
    layout = "strided"

    def __init__(self, array):
        self.array = array
        self.dtype = str(array.dtype)
        self.shape = array.shape

    def is_conj(self):
        return False

    is_neg = is_conj

    def numel(self):
        return self.array.size

    def element_size(self):
        return self.array.itemsize

    def detach(self):
        return self

    def contiguous(self):
        return Tensor(np.ascontiguousarray(self.array))

    def reshape(self, *shape):
        return Tensor(self.array.reshape(*shape))

    def view(self, dtype):
        return Tensor(self.array.view(dtype))

    def numpy(self):
        return self.array


@pytest.fixture(autouse=True)
def torch(monkeypatch):
    made = types.ModuleType("torch")
    made.Tensor = Tensor
    made.strided = "strided"
    made.uint8 = np.uint8
    made.frombuffer = lambda buffer, dtype: Tensor(np.frombuffer(buffer, dtype=dtype))
    monkeypatch.setitem(sys.modules, "torch", made)


@pytest.mark.parametrize("cannot_be_named", [False, True])
def test_a_tensor_leaves_its_data_out_of_band(cannot_be_named):
    tensor = Tensor(np.arange(10_000.0).reshape(100, 100))
    value = {"x": tensor, "again": [tensor], "f": (lambda: tensor) if cannot_be_named else None}
    assert (_serialization.dumps_by_name(value) is None) == cannot_be_named
    dumps = _serialization.dumps_by_value if cannot_be_named else _serialization.dumps_by_name
    data, buffers = dumps(value)
    assert len(data) < 10_000
    assert [len(buffer.raw()) for buffer in buffers] == [80_000]
    back = _serialization.loads(data, [bytes(buffer.raw()) for buffer in buffers])
    assert back["x"].shape == (100, 100)
    assert (back["x"].array == tensor.array).all()
    assert back["again"][0] is back["x"]


def test_a_tensor_that_is_not_contiguous():
    tensor = Tensor(np.arange(20_000.0).reshape(100, 200)[:, ::2])
    data, buffers = _serialization.dumps_by_name(tensor)
    back = _serialization.loads(data, [bytes(buffer.raw()) for buffer in buffers])
    assert (back.array == tensor.array).all()


@pytest.mark.parametrize("change", ["small", "grad", "device"])
def test_any_other_tensor_goes_the_way_of_torch(change):
    tensor = Tensor(np.arange(3.0 if change == "small" else 10_000.0))
    if change == "grad":
        tensor.requires_grad = True
    elif change == "device":
        tensor.device = types.SimpleNamespace(type="cuda")
    data, _buffers = _serialization.dumps_by_name(tensor)
    assert b"hoplo._serialization" not in data
