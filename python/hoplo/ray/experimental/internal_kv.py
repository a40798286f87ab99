"""Keys and values in the control store, under the names of `ray.experimental.internal_kv`."""

from __future__ import annotations

from hoplo import _core
from hoplo._api import initialize_once

__all__ = [
    "_internal_kv_del",
    "_internal_kv_exists",
    "_internal_kv_get",
    "_internal_kv_initialized",
    "_internal_kv_list",
    "_internal_kv_put",
]


def _internal_kv_initialized() -> bool:
    return _core.is_initialized()


def _internal_kv_put(
    key: str | bytes,
    value: str | bytes,
    overwrite: bool = True,
    *,
    namespace: str | bytes | None = None,
) -> bool:
    """Stores a value; True when there was one of that key already."""
    initialize_once()
    return not _core.kv_put(_key(key, namespace), _bytes(value), overwrite)


def _internal_kv_get(key: str | bytes, *, namespace: str | bytes | None = None) -> bytes | None:
    initialize_once()
    return _core.kv_get(_key(key, namespace))


def _internal_kv_exists(key: str | bytes, *, namespace: str | bytes | None = None) -> bool:
    return _internal_kv_get(key, namespace=namespace) is not None


def _internal_kv_del(key: str | bytes, *, namespace: str | bytes | None = None) -> int:
    """How many keys went: 1 or 0."""
    initialize_once()
    return int(_core.kv_delete(_key(key, namespace)))


def _internal_kv_list(prefix: str | bytes, *, namespace: str | bytes | None = None) -> list[bytes]:
    initialize_once()
    start = _key(b"", namespace)
    return [key[len(start) :] for key in _core.kv_keys(start + _bytes(prefix))]


def _key(key: str | bytes, namespace: str | bytes | None) -> bytes:
    """Of its own in the store, whatever else keeps keys there."""
    return b"ray:" + _bytes(namespace or b"") + b":" + _bytes(key)


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
