"""A running Ray cluster: whether it is there, and its machines."""

import socket
import time

from search.config import SearchConfig
from search.resources import Node, num_slots

PATIENCE = 40.0
"""Seconds without an answer after which a cluster is gone. After 60, Ray ends this process without a word."""
_ANSWER_SECONDS = 3.0


def check(address: str) -> None:
    """Raises ValueError when `address` cannot be that of a cluster, or nothing answers there."""
    if address == "auto":
        import ray

        try:
            ray._private.services.get_ray_address_from_environment("auto", None)
        except ConnectionError:
            raise ValueError("address = 'auto': no Ray cluster runs on this machine") from None
        return
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdigit():
        raise ValueError(f"address = {address!r}: must be HOST:PORT of a Ray cluster's head, or auto")
    if not _answers(address):
        raise ValueError(f"address = {address!r}: no Ray cluster answers there")


class Head:
    """The head of a cluster, once Ray is connected to it; watched by another thread than Ray's."""

    def __init__(self) -> None:
        self._address, self._seen = "", 0.0

    def connected(self) -> None:
        import ray

        self._address, self._seen = ray.get_runtime_context().gcs_address, time.monotonic()

    def is_gone(self) -> bool:
        """Whether it has not answered for PATIENCE seconds."""
        if not self._address or _answers(self._address):
            self._seen = time.monotonic()
        return time.monotonic() - self._seen > PATIENCE


def nodes() -> list[Node]:
    """The machines of the cluster that are alive."""
    import ray

    offers = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [Node(int(offer.get("CPU", 0)), int(offer.get("GPU", 0))) for offer in offers]


def slots(config: SearchConfig) -> int:
    """How many trainings run at once on the machines that are alive; 0 when not even one fits at the moment."""
    try:
        return num_slots(config, nodes())
    except ValueError:
        return 0


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS).close()
    except OSError:
        return False
    return True
