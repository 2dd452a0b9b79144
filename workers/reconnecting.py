"""What keeps a worker alive when its broker dies at any instant.

Closing a lost connection can fail half-way. kombu then takes the connection away from channels that are still asked for
something: by an acknowledgement that waits, by the closing itself, by the first words on a new connection. That raises
an AttributeError (`'NoneType' object has no attribute 'hostname'`, or 'state', or '_callbacks'), which Celery takes for
a bug and ends the worker; so does kombu's own OperationalError, where the broker dies again while a worker greets the
others. Here it is the lost connection that it is: Celery connects again.
"""

from __future__ import annotations

from typing import Any

from celery.worker.consumer import Consumer as CeleryConsumer
from kombu.exceptions import OperationalError
from kombu.transport import redis as kombu_redis


class LostConnection(ConnectionResetError):
    """What lost connections are raised as."""


class Channel(kombu_redis.Channel):  # type: ignore[misc]
    """A channel to Redis that says so when its connection was closed."""

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        if self.connection is None or self.connection.client is None:
            raise LostConnection("this channel's connection was closed")
        parameters: dict[str, Any] = super()._connparams(asynchronous)
        return parameters


class Transport(kombu_redis.Transport):  # type: ignore[misc]
    """`broker_transport` of workers on Redis."""

    Channel = Channel


class Consumer(CeleryConsumer):  # type: ignore[misc]
    """`worker_consumer`: connects again after an error of the broker's client that is a lost connection."""

    class Blueprint(CeleryConsumer.Blueprint):  # type: ignore[misc]
        """Celery's steps, from connecting to the end of the loop that takes messages."""

        def start(self, parent: Any) -> None:
            try:
                super().start(parent)
            except OperationalError as error:
                raise LostConnection(f"the broker was lost: {error}") from error
            except AttributeError as error:
                if error.name is None or error.obj is not None:
                    raise
                raise LostConnection(f"the connection was closed: {error}") from error
