"""A CUDA program for the driver API alone, without a toolkit: `python program.py work SECONDS | wild | odd | trap`.

`work` keeps every multiprocessor of GPU 0 busy. `wild` writes where nothing is mapped, as a wrong index does; `odd`
writes a word to an odd address on every multiprocessor; `trap` gives up, as a failed assertion does. The driver ends
all three. None changes a setting of the GPU, which is as good as before when the program has ended.
"""

import ctypes
import sys
import time

CRASHES = {"wild": 700, "odd": 716, "trap": 719}
"""What the driver answers: illegal address, misaligned address, launch failure."""
BLOCKS, THREADS = 1024, 256
KERNELS = rb"""
.version 6.0
.target sm_60
.address_size 64

.visible .entry wild()
{
    .reg .b64 %where;
    .reg .b32 %what;
    mov.u64 %where, 64;
    mov.u32 %what, 1;
    st.global.u32 [%where], %what;
    ret;
}

.visible .entry odd()
{
    .shared .align 8 .b8 place[16];
    .reg .b32 %where, %what;
    mov.u32 %where, place;
    mov.u32 %what, %ntid.x;
    shr.u32 %what, %what, 8;
    add.u32 %where, %where, %what;
    st.shared.u32 [%where], %what;
    ret;
}

.visible .entry trap()
{
    trap;
    ret;
}

.visible .entry work(.param .u32 rounds)
{
    .reg .pred %again;
    .reg .b32 %left;
    .reg .f32 %x;
    ld.param.u32 %left, [rounds];
    mov.f32 %x, 0f3F800000;
LOOP:
    fma.rn.f32 %x, %x, %x, %x;
    sub.u32 %left, %left, 1;
    setp.ne.u32 %again, %left, 0;
    @%again bra LOOP;
    ret;
}
"""
"""PTX: the driver compiles it for whatever GPU there is."""


def main(what: str, seconds: float = 0.0) -> int:
    """0 if it ended as it should."""
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context, module, kernel = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()

    def call(name: str, *arguments: object) -> None:
        code = getattr(cuda, name)(*arguments)
        if code:
            raise RuntimeError(f"{name} answers {code}")

    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuModuleLoadData", ctypes.byref(module), KERNELS)
    call("cuModuleGetFunction", ctypes.byref(kernel), module, what.encode())
    rounds = ctypes.c_uint(1_000_000)
    arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(rounds), ctypes.c_void_p))
    until = time.monotonic() + seconds
    while True:
        call("cuLaunchKernel", kernel, BLOCKS, 1, 1, THREADS, 1, 1, 0, None, arguments, None)
        code = cuda.cuCtxSynchronize()
        if what in CRASHES:
            print(f"{what}: cuCtxSynchronize answers {code}")
            return int(code != CRASHES[what])
        if code:
            raise RuntimeError(f"cuCtxSynchronize answers {code}")
        if time.monotonic() > until:
            return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(float, sys.argv[2:])))
