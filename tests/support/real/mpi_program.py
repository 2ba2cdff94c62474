"""An MPI program: each rank prints hello, and all check a sum over all. Its argument is the MPI
library.

The first rank prints the bus bandwidth of sums over 4 MiB, as all_reduce_perf of nccl-tests does.
The program calls the real library by its C interface, so that it needs no compiler. It runs on
workers, apart from this repository.
"""

import ctypes
import os
import sys
import time

library = sys.argv[1]
mpi = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
world: object
integer: object
add: object
if ".so.40" in library:
    # Open MPI's handles are addresses of objects in the library.
    world, integer, add = (
        ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, f"ompi_mpi_{name}")))
        for name in ("comm_world", "int", "op_sum")
    )
else:
    # MPICH's are numbers.
    world, integer, add = (ctypes.c_int(number) for number in (0x44000000, 0x4C000405, 0x58000003))
rank, size, total = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
mpi.MPI_Init(None, None)
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
mpi.MPI_Comm_size(world, ctypes.byref(size))
mine = ctypes.c_int(rank.value + 1)
mpi.MPI_Allreduce(ctypes.byref(mine), ctypes.byref(total), 1, integer, add, world)
print(
    f"hello from rank {rank.value} of {size.value} on {os.uname().nodename}: the sum is "
    f"{total.value}",
    flush=True,
)

INTEGERS, ROUNDS = 1 << 20, 10
given, sums = (ctypes.c_int * INTEGERS)(), (ctypes.c_int * INTEGERS)()
began = time.monotonic()
for _ in range(ROUNDS):
    mpi.MPI_Allreduce(given, sums, INTEGERS, integer, add, world)
seconds = (time.monotonic() - began) / ROUNDS
if rank.value == 0:
    # Each rank sends and receives this share of the bytes at least.
    share = 2 * (size.value - 1) / size.value
    print(f"# Avg bus bandwidth    : {share * ctypes.sizeof(given) / seconds / 1e9:g}", flush=True)
mpi.MPI_Finalize()
sys.exit(total.value != size.value * (size.value + 1) // 2)
