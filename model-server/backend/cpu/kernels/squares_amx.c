/* squares_amx.c - squares in the tile registers of AMX: four sums at a time, two by two,
 * or one by four if there are only 16 rows of x. Compiled alone. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/cpu/kernels/tiles.inc.h"

/* Registers of sums and of x come first; fewer rows of them take less time. */
enum { W_TILE = 7 };

/* sum += x w */
#define MULTIPLY(sum, x, w)                                                                        \
    do {                                                                                           \
        if (i8)                                                                                    \
            __asm__ volatile("tdpbsud %%tmm" #w ", %%tmm" #x ", %%tmm" #sum ::);                   \
        else                                                                                       \
            __asm__ volatile("tdpbf16ps %%tmm" #w ", %%tmm" #x ", %%tmm" #sum ::);                 \
    } while (0)

/* tmm0 .. tmm3 from or to memory: [tall][wide]. */
#define EACH_SUM(move)                                                                             \
    do {                                                                                           \
        move(0, sums, s);                                                                          \
        if (wide > 1)                                                                              \
            move(1, sums + 64, s);                                                                 \
        if (tall > 1)                                                                              \
            move(2, sums + below, s);                                                              \
        if (tall > 1 && wide > 1)                                                                  \
            move(3, sums + below + 64, s);                                                         \
        if (wide > 2)                                                                              \
            move(2, sums + 128, s);                                                                \
        if (wide > 3)                                                                              \
            move(3, sums + 192, s);                                                                \
    } while (0)

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
    EACH_SUM(LOAD);
}

INLINE void store_sums(const struct squares *t, char *sums, const int tall, const int wide)
{
    const size_t s = t->sums_bytes, below = SQUARE * s;
    EACH_SUM(STORE);
}

/* Prefetches are issued between the tiles: all at once they would stall each other. */
INLINE void fetch(const char *at, const size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(at + i, 0, 2);
}

/* The same into the L1 cache. */
INLINE void fetch_near(const char *at, const size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(at + i, 0, 3);
}

/* Panels of a block, and where those are that are prefetched. */
struct panels {
    const char *w[4], *next[4];
};

INLINE struct panels panels_at(const struct squares *t, uint32_t panel, const int wide)
{
    struct panels p;
    UNROLL for (int i = 0; i < wide; i++)
    {
        const size_t at = panel + (size_t)i;
        const char *const *listed = t->panels + at;
        p.w[i] = t->panels ? listed[0] : t->w + at * t->w_bytes;
        p.next[i] = t->panels ? listed[SQUARE_AHEAD] : t->next + at * t->next_bytes;
    }
    return p;
}

/* Up to two panels with 32 rows: w stays in its registers for all parts of x. `far`: what of
 * `next` is prefetched. */
INLINE void step_square(const struct squares *t, const char *x, const char *const *w, size_t at,
                        const char *const *next, size_t far, const int wide, const int parts,
                        const bool i8)
{
    LOAD(6, w[0] + at, 64);
    if (wide > 1)
        LOAD(7, w[1] + at, 64);
    UNROLL for (int p = 0; p < parts; p++, x += SQUARE_BYTES)
    {
        LOAD(4, x, 64);
        MULTIPLY(0, 4, 6);
        if (p == 0)
            fetch(next[0] + far, t->fetch);
        if (wide > 1)
            MULTIPLY(1, 4, 7);
        if (p == 0 && wide > 1)
            fetch(next[1] + far, t->fetch);
        LOAD(5, x + t->x_bytes, 64);
        MULTIPLY(2, 5, 6);
        if (wide > 1)
            MULTIPLY(3, 5, 7);
    }
}

/* Up to four panels with up to 16 rows, of which x stays in its registers: w is read once. Memory
 * is the limit here; a line that is prefetched twice, before and behind the load of a tile, arrives
 * sooner. */
INLINE void step_row(const struct squares *t, const char *x, const char *const *w, size_t at,
                     const char *const *next, size_t far, const int wide, const int parts,
                     const bool i8)
{
    const size_t part = (size_t)t->rows * SQUARE_STEP_BYTES;
    LOAD(4, x, 64);
    if (parts > 1) {
        LOAD(5, x + part, 64);
        LOAD(6, x + 2 * part, 64);
    }
#define PANEL(sum, n)                                                                              \
    do {                                                                                           \
        if (!t->panels)                                                                            \
            fetch_near(next[n] + far, t->fetch);                                                   \
        LOAD(7, w[n] + at, 64);                                                                    \
        MULTIPLY(sum, 4, 7);                                                                       \
        fetch(next[n] + far, t->fetch);                                                            \
        if (parts > 1) {                                                                           \
            MULTIPLY(sum, 5, 7);                                                                   \
            MULTIPLY(sum, 6, 7);                                                                   \
        }                                                                                          \
    } while (0)
    PANEL(0, 0);
    if (wide > 1)
        PANEL(1, 1);
    if (wide > 2)
        PANEL(2, 2);
    if (wide > 3)
        PANEL(3, 3);
#undef PANEL
}

/* Up to 2 x 2 or 1 x 4 squares, over all steps. */
INLINE void block(const struct squares *t, char *sums, const char *x, const struct panels *p,
                  const int tall, const int wide, const int parts, const bool i8)
{
    const size_t end = (size_t)t->steps * SQUARE_BYTES;
    const size_t cut = end > t->ahead ? end - t->ahead : 0;
    const bool within = cut && t->ahead;
    const char *const *from = within ? p->w : p->next;
    size_t far = within ? t->ahead : 0;
    start_sums(t, sums, tall, wide);
    for (size_t at = 0; at < end; at += SQUARE_BYTES) {
        if (at == cut)
            from = p->next, far = 0;
        if (tall > 1)
            step_square(t, x, p->w, at, from, far, wide, parts, i8);
        else
            step_row(t, x, p->w, at, from, far, wide, parts, i8);
        x += (size_t)parts * t->rows * SQUARE_STEP_BYTES;
        far += t->fetch;
    }
    store_sums(t, sums, tall, wide);
}

/* All panels for the current 16 or 32 rows. */
INLINE void row_of_blocks(const struct squares *t, uint32_t row, const int tall,
                          const uint32_t most, const int parts, const bool i8)
{
    char *sums = (char *)t->sums + (size_t)row * SQUARE * t->sums_bytes;
    const char *x = t->x + row * t->x_bytes;
    uint32_t panel = 0;
#define TAKE(n)                                                                                    \
    for (; most >= (n) && t->wide - panel >= (n); panel += (n)) {                                  \
        const struct panels p = panels_at(t, panel, n);                                            \
        block(t, sums + (size_t)panel * 64, x, &p, tall, n, parts, i8);                            \
    }
    TAKE(4)
    TAKE(2)
    TAKE(1)
#undef TAKE
}

INLINE void squares(const struct squares *t, const int parts, const bool i8)
{
    struct tile_config shapes = all_square;
    for (int i = 0; i < W_TILE && t->rows < SQUARE; i++)
        shapes.rows[i] = (uint8_t)t->rows;
    TILES_BEGIN(shapes);
    for (uint32_t r = 0; r < t->tall; r += 2)
        if (t->tall - r > 1)
            row_of_blocks(t, r, 2, 2, parts, i8);
        else
            row_of_blocks(t, r, 1, 4, parts, i8);
    TILES_END();
}

void k_squares_bf16_amx(const struct squares *t)
{
    if (t->parts == 1)
        squares(t, 1, false);
    else
        squares(t, SQUARE_PARTS, false);
}

void k_squares_i8_amx(const struct squares *t) { squares(t, 1, true); }
