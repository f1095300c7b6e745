"""Modules take and return objects of classes that are registered as pytrees, such as KV caches."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import _pytree

import alpenglow as ag
from alpenglow.base.errors import FeedError, ModelError
from alpenglow.frontends.torch import pytrees


class Cache:
    """Keys and values of each layer; it begins with tensors of no elements, as Hugging Face's."""

    def __init__(self, layers: Any = ()) -> None:
        self.layers: list[Any] = []
        for k, v in layers:
            self.append(k, v)

    def append(self, k: torch.Tensor, v: torch.Tensor, layer: int | None = None) -> Any:
        if layer is None or layer == len(self.layers):
            layer = len(self.layers)
            self.layers.append((torch.tensor([]), torch.tensor([])))
        old = self.layers[layer]
        new = tuple(torch.cat(pair, -2) for pair in zip(old, (k, v), strict=True))
        self.layers[layer] = new
        return new


def flatten(cache: Cache) -> tuple[list[Any], list[Any]]:
    keys, values = ([layer[i] for layer in cache.layers] for i in (0, 1))
    return [keys, values], [["keys", "values"], [None] * len(cache.layers)]


def with_keys(cache: Cache) -> list[Any]:
    return list(zip(map(_pytree.MappingKey, ("keys", "values")), flatten(cache)[0], strict=True))


def register(cls: Any, context: Any = None, **named: Any) -> None:
    """Register a class like Cache, maybe with another context."""
    _pytree.register_pytree_node(
        cls, lambda c: (flatten(c)[0], context or flatten(c)[1]),
        lambda children, c: cls(zip(*children, strict=True)),
        flatten_with_keys_fn=lambda c: (with_keys(c), context or flatten(c)[1]), **named,
    )  # fmt: skip


register(Cache, serialized_type_name="tests.Cache")


class ByPosition(Cache):
    pass


class Nameless(Cache):
    pass


class Unserializable(Cache):
    pass


class Unknown(Cache):
    pass


register(ByPosition, {"layers": 2}, serialized_type_name="tests.ByPosition")
register(Nameless)
register(Unserializable, {1, 2}, serialized_type_name="tests.Unserializable")


class Decoder(torch.nn.Module):
    """Two layers of attention to all tokens before; `kind` is the class of the cache."""

    def __init__(self, kind: Any = Cache) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.kind = kind
        self.embed = torch.nn.Embedding(20, 8)
        self.parts = torch.nn.ModuleList(torch.nn.Linear(8, 24) for _ in range(2))

    def forward(self, ids: torch.Tensor, cache: Any = None) -> dict[str, Any]:
        cache = self.kind() if cache is None else cache
        x = self.embed(ids)
        for i, part in enumerate(self.parts):
            q, *kv = part(x).chunk(3, -1)
            k, v = cache.append(*kv, i)
            past = k.shape[-2] - x.shape[-2]
            seen = torch.arange(k.shape[-2]) <= torch.arange(x.shape[-2])[:, None] + past
            x = x + torch.softmax((q @ k.mT).masked_fill(~seen, -1e9), -1) @ v
        return {"logits": x @ self.embed.weight.T, "cache": cache}


IDS, MORE = torch.tensor([[3, 1, 4]]), torch.tensor([[3, 1, 4, 1, 5]])
LAYERS = [{1: torch.export.Dim("past", min=0, max=30)}] * 2
SHAPES = {"ids": {1: torch.export.Dim("tokens", min=1, max=30)}, "cache": [LAYERS, LAYERS]}
NAMES = ["cache_keys_0", "cache_keys_1", "cache_values_0", "cache_values_1"]


def eager(ids: torch.Tensor, cache: Any = None) -> Any:
    with torch.no_grad():
        return Decoder()(ids, cache)


def traced(**options: Any) -> Any:
    """Return a decoder that is compiled for pasts of any length; the example lengths differ."""
    kwargs = {"cache": eager(MORE)["cache"]}
    return ag.compile(Decoder(), args=(IDS,), kwargs=kwargs, dynamic_shapes=SHAPES, **options)


@pytest.fixture(scope="module")
def exe() -> Any:
    return traced()


def close(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(actual["logits"], expected["logits"], rtol=1e-4, atol=1e-5)
    for i, (k, v) in enumerate(expected["cache"].layers):
        np.testing.assert_allclose(actual["cache"]["keys"][i], k, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(actual["cache"]["values"][i], v, rtol=1e-4, atol=1e-5)


def test_an_object_among_the_results_is_a_dict_of_its_fields() -> None:
    exe = ag.compile(Decoder(), args=(IDS,))

    close(exe(IDS.numpy()), eager(IDS))
    assert list(exe.outputs) == ["logits", *NAMES]


def test_an_object_among_the_arguments_is_taken_as_such_and_as_a_dict(exe: Any) -> None:
    first = eager(IDS)["cache"]
    token = torch.tensor([[5]])

    assert list(exe.inputs) == ["ids", *NAMES]
    second = exe(token.numpy(), cache=first)
    close(second, eager(token, first))
    third = exe(token.numpy(), cache=second["cache"])
    close(third, eager(token, first))


def test_a_call_does_not_change_the_object(exe: Any) -> None:
    cache = eager(IDS)["cache"]
    exe(IDS.numpy(), cache=cache)

    assert cache.layers[0][0].shape == (1, 3, 8)


@pytest.mark.parametrize("wrong", [3, {"keys": []}, [1, 2]])
def test_another_object_is_refused(exe: Any, wrong: Any) -> None:
    with pytest.raises(FeedError, match="expected a dict with keys, values"):
        exe(IDS.numpy(), cache=wrong)


def test_an_object_that_goes_in_and_comes_out_is_the_state_of_a_session() -> None:
    exe = traced(state=True, last=["logits"])
    session = exe.session(length=16)
    ids, cache = IDS, None

    assert list(exe.inputs) == ["ids"] and list(session.variables) == NAMES
    for _ in range(4):
        logits = session(ids.numpy())["logits"]
        expected = eager(ids, cache)
        cache = expected["cache"]
        np.testing.assert_allclose(logits, expected["logits"][:, -1:], rtol=1e-4, atol=1e-5)
        ids = expected["logits"][:, -1:].argmax(-1)
    assert session.rows == 6


def test_a_file_is_called_with_such_objects(tmp_path: Path) -> None:
    cache = eager(MORE)["cache"]
    program = torch.export.export(Decoder(), (IDS,), {"cache": cache}, dynamic_shapes=SHAPES)
    torch.export.save(program, tmp_path / "m.pt2")
    exe = ag.compile(tmp_path / "m.pt2")

    close(exe(IDS.numpy(), cache=cache), eager(IDS, cache))


def test_fields_without_names_are_a_tuple() -> None:
    exe = ag.compile(Decoder(ByPosition), args=(IDS,))
    keys, values = exe(IDS.numpy())["cache"]
    expected = eager(IDS)["cache"].layers

    np.testing.assert_allclose(keys[1], expected[1][0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(values[0], expected[0][1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [Nameless, Unserializable])
def test_a_class_that_json_cannot_describe_is_arrays_in_order(kind: Any) -> None:
    class Halved(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            cache = kind()
            cache.layers = [(x / 2, x / 4)]
            return cache

    half, quarter = ag.compile(Halved(), args=(torch.ones(3),))(np.ones(3, np.float32))

    np.testing.assert_array_equal(half, [0.5] * 3)
    np.testing.assert_array_equal(quarter, [0.25] * 3)


@pytest.mark.parametrize("given", [{}, {"cache": Unknown()}])
def test_a_class_that_is_not_registered_is_refused_with_what_registers_it(given: Any) -> None:
    with pytest.raises(ModelError, match="cannot trace Decoder") as error:
        ag.compile(Decoder(Unknown), args=(IDS,), kwargs=given)

    assert "register_pytree_node(Unknown, flatten, unflatten, " in (error.value.hint or "")


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a class whose package registers it only on request."""

    class OnRequest(Cache):
        pass

    module = ModuleType("on_request")
    vars(module)["OnRequest"] = OnRequest
    vars(module)["register"] = lambda: register(OnRequest, serialized_type_name="tests.OnRequest")
    monkeypatch.setitem(sys.modules, "on_request", module)
    return OnRequest


@pytest.mark.parametrize("function", ["register", "renamed"])
def test_a_class_that_its_package_registers_on_request_is_registered(
    monkeypatch: pytest.MonkeyPatch, package: Any, function: str
) -> None:
    registrars = {"on_request.OnRequest": ("on_request", function)}
    monkeypatch.setattr(pytrees, "REGISTRARS", registrars)
    if function == "renamed":
        with pytest.raises(ModelError, match="OnRequest"):
            ag.compile(Decoder(package), args=(IDS,))
        return

    close(ag.compile(Decoder(package), args=(IDS,))(IDS.numpy()), eager(IDS))
