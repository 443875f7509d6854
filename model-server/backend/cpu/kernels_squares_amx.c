/* kernels_squares_amx.c - squares in the tile registers of AMX: four sums at a time, two by two, or
 * one by four where there are 16 rows of x only. Compiled alone; the instructions are written out,
 * so that the compiler sees that they read memory.
 *
 * The registers' shapes belong to a thread. Each call sets them and gives them back: a thread whose
 * tiles are in use costs the kernel 8 KiB with every switch. */
#include "model-server/backend/cpu/kernels.h"

#define INLINE static inline __attribute__((always_inline))

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

#define TILES_BEGIN() __asm__ volatile("ldtilecfg %0" ::"m"(all_square) : "memory")
#define TILES_END()   __asm__ volatile("tilerelease" ::: "memory")
#define ZERO(tile)    __asm__ volatile("tilezero %%tmm" #tile ::)
#define LOAD(tile, at, stride)                                                                     \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(at), "r"((size_t)(stride)) : "memor" \
                                                                                           "y")
#define STORE(tile, at, stride)                                                                    \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(at), "r"((size_t)(stride))       \
                     : "memory")
/* sum += x w */
#define MULTIPLY(sum, x, w)                                                                        \
    do {                                                                                           \
        if (i8)                                                                                    \
            __asm__ volatile("tdpbsud %%tmm" #w ", %%tmm" #x ", %%tmm" #sum ::);                   \
        else                                                                                       \
            __asm__ volatile("tdpbf16ps %%tmm" #w ", %%tmm" #x ", %%tmm" #sum ::);                 \
    } while (0)

/* The squares in hand: up to 2 x 2 or 1 x 4. */
struct squares_part {
    char *sums;
    const char *x, *w, *next;
    size_t next_bytes; /* fetched of each panel in a step */
};

/* tmm0 .. tmm3 from or to memory: [tall][wide]. */
INLINE void start_sums(const struct squares *t, char *sums, const int tall, const int wide)
{
    const size_t s = t->sums_bytes, below = SQUARE * s;
    if (!t->add) {
        ZERO(0);
        ZERO(1);
        ZERO(2);
        ZERO(3);
        return;
    }
    LOAD(0, sums, s);
    if (wide > 1)
        LOAD(1, sums + 64, s);
    if (tall > 1)
        LOAD(2, sums + below, s);
    if (tall > 1 && wide > 1)
        LOAD(3, sums + below + 64, s);
    if (wide > 2)
        LOAD(2, sums + 128, s);
    if (wide > 3)
        LOAD(3, sums + 192, s);
}

INLINE void store_sums(const struct squares *t, char *sums, const int tall, const int wide)
{
    const size_t s = t->sums_bytes, below = SQUARE * s;
    STORE(0, sums, s);
    if (wide > 1)
        STORE(1, sums + 64, s);
    if (tall > 1)
        STORE(2, sums + below, s);
    if (tall > 1 && wide > 1)
        STORE(3, sums + below + 64, s);
    if (wide > 2)
        STORE(2, sums + 128, s);
    if (wide > 3)
        STORE(3, sums + 192, s);
}

INLINE void step(const struct squares *t, const char *x, const char *w, const int tall,
                 const int wide, const bool i8)
{
    const size_t wb = t->w_bytes;
    LOAD(4, x, 64);
    LOAD(6, w, 64);
    MULTIPLY(0, 4, 6);
    if (wide > 1) {
        LOAD(7, w + wb, 64);
        MULTIPLY(1, 4, 7);
    }
    if (tall > 1) {
        LOAD(5, x + t->x_bytes, 64);
        MULTIPLY(2, 5, 6);
        if (wide > 1)
            MULTIPLY(3, 5, 7);
    }
    if (wide > 2) {
        LOAD(5, w + 2 * wb, 64);
        MULTIPLY(2, 4, 5);
    }
    if (wide > 3) {
        LOAD(6, w + 3 * wb, 64);
        MULTIPLY(3, 4, 6);
    }
}

INLINE void part(const struct squares *t, const struct squares_part *p, const int tall,
                 const int wide, const bool i8)
{
    const char *x = p->x, *w = p->w, *next = p->next;
    start_sums(t, p->sums, tall, wide);
    for (uint32_t i = 0; i < t->steps; i++, x += SQUARE_BYTES, w += SQUARE_BYTES) {
        for (int j = 0; next && j < wide; j++)
            for (size_t at = 0; at < p->next_bytes; at += 64)
                __builtin_prefetch(next + (size_t)j * t->w_bytes + at, 0, 2);
        next += next ? p->next_bytes : 0;
        step(t, x, w, tall, wide, i8);
    }
    store_sums(t, p->sums, tall, wide);
}

/* All panels for the 16 or 32 rows in hand. */
INLINE void row_of_parts(const struct squares *t, struct squares_part p, const int tall,
                         const int most, const bool i8)
{
    uint32_t left = t->wide;
#define TAKE(n)                                                                                    \
    for (; most >= (n) && left >= (n); left -= (n)) {                                              \
        part(t, &p, tall, n, i8);                                                                  \
        p.sums += (n)*64, p.w += (n)*t->w_bytes;                                                   \
        p.next += p.next ? (n)*t->w_bytes : 0;                                                     \
    }
    TAKE(4)
    TAKE(2)
    TAKE(1)
#undef TAKE
}

INLINE void squares(const struct squares *t, const bool i8)
{
    const uint32_t turns = (t->tall + 1) / 2; /* the panels are walked so often */
    const size_t next_bytes = (SQUARE_BYTES / 64 + turns - 1) / turns * 64;
    TILES_BEGIN();
    for (uint32_t r = 0; r < t->tall; r += 2) {
        const size_t fetched = r / 2 * next_bytes * t->steps;
        const bool any = t->next && fetched < (size_t)t->steps * SQUARE_BYTES;
        const struct squares_part p = {.sums = (char *)t->sums + r * SQUARE * t->sums_bytes,
                                       .x = t->x + r * t->x_bytes,
                                       .w = t->w,
                                       .next = any ? t->next + fetched : NULL,
                                       .next_bytes = next_bytes};
        if (t->tall - r > 1)
            row_of_parts(t, p, 2, 2, i8);
        else
            row_of_parts(t, p, 1, 4, i8);
    }
    TILES_END();
}

void k_squares_bf16_amx(const struct squares *t) { squares(t, false); }
void k_squares_i8_amx(const struct squares *t) { squares(t, true); }
