"""The exception classes. Every error that a user can cause or see is an instance of one of these classes.

EdgefrontError
├── InvalidInput            a value is wrong: names the field, the value and what is allowed
│   ├── ArchitectureError   an architecture description is wrong
│   ├── SpaceError          a search space or its narrowing is wrong, or leaves nothing
│   └── ProtocolError       a measurement protocol is wrong
├── Unauthenticated         the credential is missing or invalid
├── Forbidden               the credential is valid, but does not permit this request
├── NotFound                the requested object does not exist, or belongs to another owner
├── Conflict                the object's present state does not allow this request
│   └── BoundReached        an owner has as much as the admin allows
├── Gone                    the object was revoked or deleted (a revoked device, a deleted job)
├── TooLarge                a body, batch or file exceeds its maximum size
├── TooManyRequests         a rate limit was exceeded; `retry_after_s` says how long to wait
├── Unavailable             the service, or a dependency of the service, is unavailable for now; try again
├── Diverged                a model's loss is not a number
└── MeasurementError        a measurement could not be made on this machine
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

_Error = TypeVar("_Error", bound="EdgefrontError")
_Result = TypeVar("_Result")


class EdgefrontError(Exception):
    """Base class of all errors. `status` is the HTTP status, `kind` the stable identifier that clients can match on.

    `path` holds the keys of the wrong field within the input: ("blocks", "3", "n_head"). A caller whose request
    contains that input prefixes the path with `under`.

    Args:
        detail: one sentence: what is wrong and what would be right. If it begins with the field, followed by a space
            or a colon, that field is prefixed together with the path.
        field: the path, as keys or as text: `blocks.3.n_head`. Empty: no field.
        extra: further members of the problem document.
    """

    status: ClassVar[int] = 500
    kind: ClassVar[str] = "error"

    def __init__(self, detail: str, *, field: str | Sequence[str] = "", **extra: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.path = tuple(field.split(".") if isinstance(field, str) else field) if field else ()
        leads = self.path and detail.startswith((f"{self.field} ", f"{self.field}:"))
        self._after_field = detail[len(self.field) :] if leads else None
        self._extra = extra

    @property
    def field(self) -> str:
        """Path of the wrong field as text: `blocks.3.n_head`."""
        return ".".join(self.path)

    @property
    def extra(self) -> dict[str, Any]:
        return ({"field": self.field} if self.path else {}) | self._extra

    def at(self: _Error, *path: str | int) -> _Error:
        """Returns the same error with this path of the wrong field."""
        keys = tuple(str(key) for key in path)
        detail = self.detail if self._after_field is None else ".".join(keys) + self._after_field
        return type(self)(detail, field=keys, **self._extra)

    def under(self: _Error, *keys: str | int) -> _Error:
        """Returns the same error with these keys before the path of the wrong field."""
        return self.at(*keys, *self.path) if self.path else self


_Invalid = TypeVar("_Invalid", bound="InvalidInput")


class InvalidInput(EdgefrontError, ValueError):
    """A value of the input is wrong.

    Args:
        detail, field: as in `EdgefrontError`; an empty field means the whole input.
        value: the wrong value.
        allowed: the permitted values, in words.
        extra: as in `EdgefrontError`. If several fields are wrong, `errors` has one mapping for each wrong field.
    """

    status = 422
    kind = "invalid-input"

    def __init__(
        self, detail: str, *, field: str | Sequence[str] = "", value: Any = None, allowed: str = "", **extra: Any
    ) -> None:
        super().__init__(detail, field=field, value=value, allowed=allowed, **extra)
        self.value = value
        self.allowed = allowed

    @property
    def extra(self) -> dict[str, Any]:
        return {"field": self.field, **self._extra}

    def under(self: _Invalid, *keys: str | int) -> _Invalid:
        if self.path or not keys:
            return self.at(*keys, *self.path)
        field = tuple(str(key) for key in keys)
        return type(self)(f"{'.'.join(field)}: {self.detail}", field=field, **self._extra)


class ArchitectureError(InvalidInput):
    kind = "invalid-architecture"


class SpaceError(InvalidInput):
    kind = "invalid-space"


class ProtocolError(InvalidInput):
    kind = "invalid-protocol"


class Unauthenticated(EdgefrontError):
    status = 401
    kind = "unauthenticated"


class Forbidden(EdgefrontError):
    status = 403
    kind = "forbidden"


class NotFound(EdgefrontError):
    status = 404
    kind = "not-found"


class Conflict(EdgefrontError):
    status = 409
    kind = "conflict"


class BoundReached(Conflict):
    """The owner has reached a limit that the admin set; `extra` holds `bound` (the setting), `used` and `most`."""

    kind = "bound-reached"


class Gone(EdgefrontError):
    status = 410
    kind = "gone"


class TooLarge(EdgefrontError):
    status = 413
    kind = "too-large"


class TooManyRequests(EdgefrontError):
    status = 429
    kind = "too-many-requests"


class Unavailable(EdgefrontError):
    status = 503
    kind = "unavailable"


class Diverged(EdgefrontError):
    status = 422
    kind = "diverged"


class MeasurementError(EdgefrontError):
    """A measurement failed; `reason` is a value of `core.measurement.record.FailureReason`."""

    kind = "measurement"

    def __init__(self, detail: str, *, reason: str, **extra: Any) -> None:
        super().__init__(detail, reason=reason, **extra)
        self.reason = reason


class ErrorCollector:
    """Collects the distinct errors of a request in the order of occurrence."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], EdgefrontError] = {}

    def __iter__(self) -> Iterator[EdgefrontError]:
        return iter(self._found.values())

    def collect(self, do: Callable[[], _Result]) -> _Result | None:
        """Calls `do` and returns the result. If `do` raises an EdgefrontError, stores the error and returns None."""
        try:
            return do()
        except EdgefrontError as error:
            self._found.setdefault((error.field, error.detail), error)
            return None

    def raise_first(self) -> None:
        """Raises the first collected error; returns if no error was collected."""
        for error in self:
            raise error


@contextmanager
def within(*keys: str | int) -> Iterator[None]:
    """Context manager that puts these keys before the field path of every error raised in the `with` block."""
    try:
        yield
    except EdgefrontError as error:
        if (prefixed := error.under(*keys)) is error:
            raise
        raise prefixed from None
