/* tiles.inc.h - the tile registers of AMX, for the kernels: shapes, and instructions as inline
 * assembly, so that the compiler sees that they read memory.
 *
 * The shapes of the registers belong to a thread. Each call of a kernel sets and releases them: a
 * thread whose tiles are in use costs the operating system's kernel 8 KiB with every context
 * switch. */
#include <stddef.h>
#include <stdint.h>

/* What ldtilecfg reads. */
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} __attribute__((aligned(64)));

static const struct tile_config all_square = {
    .palette = 1,
    .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 16, 16},
};

#ifndef TILES_BEGIN /* a test defines them in C, for CPUs without the unit */
/* sum += x w */
#define DOT_BF16(sum, x, w) __asm__ volatile("tdpbf16ps %%tmm" #w ", %%tmm" #x ", %%tmm" #sum ::)
#define DOT_I8(sum, x, w)   __asm__ volatile("tdpbsud %%tmm" #w ", %%tmm" #x ", %%tmm" #sum ::)
#define TILES_BEGIN(shapes) __asm__ volatile("ldtilecfg %0" ::"m"(shapes) : "memory")
#define TILES_END()         __asm__ volatile("tilerelease" ::: "memory")
#define ZERO(tile)          __asm__ volatile("tilezero %%tmm" #tile ::)
#define LOAD(tile, at, stride)                                                                     \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(at), "r"((size_t)(stride))           \
                     : "memor"                                                                     \
                       "y")
#define STORE(tile, at, stride)                                                                    \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(at), "r"((size_t)(stride))       \
                     : "memory")
#endif
