/* squares_amx.c - squares in the tile registers of AMX: four sums at a time, two by two,
 * or one by four if there are only 16 rows of x. Compiled alone. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/cpu/kernels/tiles.inc.h"

/* Registers of sums and of x come first; fewer rows of them take less time. */
enum { W_TILE = 7 };

/* What is multiplied: numbers of 8 bits, of bfloat16, x in parts, x and w in parts. */
enum form { OF_I8, OF_BF16, OF_PARTS, OF_BOTH };

INLINE int parts_of(const enum form form) { return form >= OF_PARTS ? SQUARE_PARTS : 1; }

/* Bytes of a panel in a step. */
INLINE size_t step_bytes(const enum form form)
{
    return form == OF_BOTH ? (size_t)SQUARE_PARTS * SQUARE_BYTES : SQUARE_BYTES;
}

/* sum += x w */
#define MULTIPLY(sum, x, w)                                                                        \
    do {                                                                                           \
        if (form == OF_I8)                                                                         \
            DOT_I8(sum, x, w);                                                                     \
        else                                                                                       \
            DOT_BF16(sum, x, w);                                                                   \
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

/* The products of one part of 32 rows of x with one part of up to two panels. */
#define MULTIPLY_ALL()                                                                             \
    do {                                                                                           \
        MULTIPLY(0, 4, 6);                                                                         \
        if (wide > 1)                                                                              \
            MULTIPLY(1, 4, 7);                                                                     \
        MULTIPLY(2, 5, 6);                                                                         \
        if (wide > 1)                                                                              \
            MULTIPLY(3, 5, 7);                                                                     \
    } while (0)
#define LOAD_X(part)                                                                               \
    do {                                                                                           \
        LOAD(4, x + (size_t)(part)*SQUARE_BYTES, 64);                                              \
        LOAD(5, x + t->x_bytes + (size_t)(part)*SQUARE_BYTES, 64);                                 \
    } while (0)
#define LOAD_W(part)                                                                               \
    do {                                                                                           \
        LOAD(6, w[0] + at + (size_t)(part)*SQUARE_BYTES, 64);                                      \
        if (wide > 1)                                                                              \
            LOAD(7, w[1] + at + (size_t)(part)*SQUARE_BYTES, 64);                                  \
    } while (0)

/* Both in parts: of two products in a row, one operand stays in its registers. */
INLINE void step_both(const struct squares *t, const char *x, const char *const *w, size_t at,
                      const char *const *next, size_t far, const int wide, const enum form form)
{
    LOAD_W(0);
    LOAD_X(2);
    MULTIPLY_ALL();
    fetch(next[0] + far, t->fetch);
    LOAD_W(1);
    MULTIPLY_ALL();
    LOAD_X(1);
    MULTIPLY_ALL();
    if (wide > 1)
        fetch(next[1] + far, t->fetch);
    LOAD_W(2);
    MULTIPLY_ALL();
    LOAD_X(0);
    MULTIPLY_ALL();
    LOAD_X(2);
    MULTIPLY_ALL();
}

/* Up to two panels with 32 rows: w stays in its registers for all parts of x. `far`: what of
 * `next` is prefetched. */
INLINE void step_square(const struct squares *t, const char *x, const char *const *w, size_t at,
                        const char *const *next, size_t far, const int wide, const enum form form)
{
    LOAD(6, w[0] + at, 64);
    if (wide > 1)
        LOAD(7, w[1] + at, 64);
    UNROLL for (int p = 0; p < parts_of(form); p++, x += SQUARE_BYTES)
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
                     const char *const *next, size_t far, const int wide, const enum form form)
{
    const size_t part = (size_t)t->rows * SQUARE_STEP_BYTES;
    LOAD(4, x, 64);
    if (form >= OF_PARTS) {
        LOAD(5, x + part, 64);
        LOAD(6, x + 2 * part, 64);
    }
#define PANEL(sum, n)                                                                              \
    do {                                                                                           \
        if (!t->panels)                                                                            \
            fetch_near(next[n] + far, t->fetch);                                                   \
        if (form == OF_BOTH) {                                                                     \
            LOAD(7, w[n] + at, 64);                                                                \
            MULTIPLY(sum, 6, 7);                                                                   \
            LOAD(7, w[n] + at + SQUARE_BYTES, 64);                                                 \
            MULTIPLY(sum, 6, 7);                                                                   \
            MULTIPLY(sum, 5, 7);                                                                   \
            LOAD(7, w[n] + at + 2 * (size_t)SQUARE_BYTES, 64);                                     \
            MULTIPLY(sum, 5, 7);                                                                   \
        } else {                                                                                   \
            LOAD(7, w[n] + at, 64);                                                                \
        }                                                                                          \
        MULTIPLY(sum, 4, 7);                                                                       \
        fetch(next[n] + far, t->fetch);                                                            \
        if (form == OF_PARTS) {                                                                    \
            MULTIPLY(sum, 5, 7);                                                                   \
            MULTIPLY(sum, 6, 7);                                                                   \
        }                                                                                          \
        if (form == OF_BOTH)                                                                       \
            MULTIPLY(sum, 6, 7);                                                                   \
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
                  const int tall, const int wide, const enum form form)
{
    const size_t end = t->steps * step_bytes(form);
    const size_t cut = end > t->ahead ? end - t->ahead : 0;
    const bool within = cut && t->ahead;
    const char *const *from = within ? p->w : p->next;
    size_t far = within ? t->ahead : 0;
    start_sums(t, sums, tall, wide);
    for (size_t at = 0; at < end; at += step_bytes(form)) {
        if (at == cut)
            from = p->next, far = 0;
        if (tall > 1 && form == OF_BOTH)
            step_both(t, x, p->w, at, from, far, wide, form);
        else if (tall > 1)
            step_square(t, x, p->w, at, from, far, wide, form);
        else
            step_row(t, x, p->w, at, from, far, wide, form);
        x += (size_t)parts_of(form) * t->rows * SQUARE_STEP_BYTES;
        far += t->fetch;
    }
    store_sums(t, sums, tall, wide);
}

/* All panels for the current 16 or 32 rows. */
INLINE void row_of_blocks(const struct squares *t, uint32_t row, const int tall,
                          const uint32_t most, const enum form form)
{
    char *sums = (char *)t->sums + (size_t)row * SQUARE * t->sums_bytes;
    const char *x = t->x + row * t->x_bytes;
    uint32_t panel = 0;
#define TAKE(n)                                                                                    \
    for (; most >= (n) && t->wide - panel >= (n); panel += (n)) {                                  \
        const struct panels p = panels_at(t, panel, n);                                            \
        block(t, sums + (size_t)panel * 64, x, &p, tall, n, form);                                 \
    }
    TAKE(4)
    TAKE(2)
    TAKE(1)
#undef TAKE
}

INLINE void squares(const struct squares *t, const enum form form)
{
    struct tile_config shapes = all_square;
    for (int i = 0; i < W_TILE && t->rows < SQUARE; i++)
        shapes.rows[i] = (uint8_t)t->rows;
    TILES_BEGIN(shapes);
    for (uint32_t r = 0; r < t->tall; r += 2)
        if (t->tall - r > 1)
            row_of_blocks(t, r, 2, 2, form);
        else
            row_of_blocks(t, r, 1, 4, form);
    TILES_END();
}

void k_squares_bf16_amx(const struct squares *t)
{
    if (t->split)
        squares(t, OF_BOTH);
    else if (t->parts == 1)
        squares(t, OF_BF16);
    else
        squares(t, OF_PARTS);
}

void k_squares_i8_amx(const struct squares *t) { squares(t, OF_I8); }
