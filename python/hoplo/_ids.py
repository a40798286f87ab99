"""Ids as types: hexadecimal text, as hoplo uses it everywhere, with methods."""

from __future__ import annotations

import os
from typing import ClassVar, Self

__all__ = ["BaseID"]


class BaseID(str):
    """An id. It is made of its bytes, or of hexadecimal text.

    Raises ValueError when there are more or fewer bytes than `size()`.

    >>> BaseID.nil().is_nil(), len(BaseID.from_random().binary())
    (True, 16)
    """

    __slots__ = ()
    _size: ClassVar[int] = 16

    def __new__(cls, id: bytes | str) -> Self:
        if not isinstance(id, bytes | str):
            raise TypeError(f"{cls.__name__} is made of bytes, not {type(id).__name__}")
        try:
            data = id if isinstance(id, bytes) else bytes.fromhex(id[:])
        except ValueError:
            raise ValueError(f"{cls.__name__} needs hexadecimal digits, not {id[:]!r}") from None
        if len(data) != cls._size:
            raise ValueError(f"{cls.__name__} has {cls._size} bytes, not {len(data)}")
        return super().__new__(cls, data.hex())

    @classmethod
    def size(cls) -> int:
        """How many bytes an id of this kind has."""
        return cls._size

    @classmethod
    def nil(cls) -> Self:
        """The id of nothing."""
        return cls(b"\xff" * cls._size)

    @classmethod
    def from_random(cls) -> Self:
        return cls(os.urandom(cls._size))

    @classmethod
    def from_hex(cls, text: str) -> Self:
        return cls(text)

    @classmethod
    def from_binary(cls, data: bytes) -> Self:
        return cls(data)

    def is_nil(self) -> bool:
        return self == self.nil()

    def hex(self) -> str:
        """The id as hexadecimal text."""
        return self[:]

    def binary(self) -> bytes:
        """The id as bytes."""
        return bytes.fromhex(self[:])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self[:]})"

    __str__ = __repr__

    def __format__(self, format_spec: str) -> str:
        return format(repr(self), format_spec)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.binary(),)
