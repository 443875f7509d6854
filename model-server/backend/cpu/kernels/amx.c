#include "model-server/backend/cpu/kernels/amx.h"
#include "model-server/backend/cpu/kernels/kernels.h"
#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of leaf 7, EDX. */
enum { HAS_AMX_BF16 = 1 << 22, HAS_AMX_TILE = 1 << 24, HAS_AMX_INT8 = 1 << 25 };
/* Of leaf 1, ECX: xgetbv may be used. Components 17 and 18 are shapes and contents of tiles. */
enum { HAS_OSXSAVE = 1 << 27, TILE_STATE = 3 << 17, TILE_DATA = 18 };
enum { ASK_FOR_STATE = 0x1023 }; /* ARCH_REQ_XCOMP_PERM, not in every libc's headers */

/* True if the operating system saves tiles when it switches threads. */
static bool tiles_are_saved(void)
{
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & HAS_OSXSAVE))
        return false;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & TILE_STATE) == TILE_STATE;
}

unsigned amx_detect(void)
{
    unsigned a, b, c, d, found = 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & HAS_AMX_TILE) || !tiles_are_saved())
        return 0;
    found |= d & HAS_AMX_BF16 ? CPU_AMX_BF16 : 0;
    found |= d & HAS_AMX_INT8 ? CPU_AMX_INT8 : 0;
    if (found && syscall(SYS_arch_prctl, ASK_FOR_STATE, TILE_DATA))
        return 0;
    return found;
}
#else
unsigned amx_detect(void) { return 0; }
#endif
