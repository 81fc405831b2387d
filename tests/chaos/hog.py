"""A foreign process on a GPU, with nothing but the driver's libcuda.so.1: python hog.py UUID, then one order on its standard input.

    all BYTES    take the free memory but these bytes, and go on taking what becomes free
    hold SHARE   hold this share of the free memory
    busy SHARE   the same, and keep the GPU's memory at work

It answers `holds N bytes` and goes on until SIGTERM, or until the input ends, as it does with the parent. Before the order it touches no GPU.
"""

import contextlib
import ctypes
import os
import sys
import threading
import time
from typing import Any

OUT_OF_MEMORY = 2

#: The driver hands out memory in pieces of this size.
PIECE_BYTES = 2 << 20

#: Seconds between two looks for memory that became free.
LOOK_S = 0.02


class CudaError(Exception):
    """What the driver answered in place of 0."""


class Gpu:
    """The first GPU that the driver shows to this process; a context on it is made at once."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self.driver, name)(*arguments)
        if code:
            raise CudaError(f"{name} answers {code}", code)

    def free_bytes(self) -> int:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def allocate(self, count: int) -> int:
        """The address of so many new bytes; 0 where the driver has no such piece."""
        address = ctypes.c_uint64()
        try:
            self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(count))
        except CudaError as error:
            if error.args[1] == OUT_OF_MEMORY:
                return 0
            raise
        return address.value

    def fill(self, address: int, count: int) -> None:
        self._call("cuMemsetD32_v2", ctypes.c_uint64(address), ctypes.c_uint(7), ctypes.c_size_t(count // 4))
        self._call("cuCtxSynchronize")


def take(gpu: Gpu, left_bytes: int) -> list[tuple[int, int]]:
    """[(address, bytes)] of the free memory but `left_bytes`; a piece that is not to be had is tried in halves."""
    taken = []
    size = gpu.free_bytes() - left_bytes
    while size >= PIECE_BYTES:
        address = gpu.allocate(size)
        if address:
            taken.append((address, size))
            size = gpu.free_bytes() - left_bytes
        else:
            size //= 2
    return taken


def obey(gpu: Gpu, order: str) -> list[tuple[int, int]]:
    """What it holds after an order."""
    mode, amount = order.split()
    return take(gpu, int(amount)) if mode == "all" else take(gpu, int(gpu.free_bytes() * (1 - float(amount))))


def go_on(gpu: Gpu, order: str, held: list[tuple[int, int]]) -> None:
    """One round of what an order goes on with."""
    mode, amount = order.split()
    if mode == "busy" and held:
        gpu.fill(*held[0])
    else:
        time.sleep(LOOK_S)
    if mode == "all":
        with contextlib.suppress(CudaError):  # the other process may be dying just now
            take(gpu, int(amount))


def end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


def main(uuid: str) -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = uuid
    order = sys.stdin.readline()
    if not order:
        return
    threading.Thread(target=end_with_input, daemon=True).start()
    try:
        gpu = Gpu(ctypes.CDLL("libcuda.so.1"))
        held = obey(gpu, order)
    except (OSError, CudaError) as error:
        print(f"cannot: {error.args[0]}", flush=True)
        os._exit(1)
    print(f"holds {sum(count for _, count in held)} bytes", flush=True)
    while True:
        go_on(gpu, order, held)


if __name__ == "__main__":
    main(sys.argv[1])
