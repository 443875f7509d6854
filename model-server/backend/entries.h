/* entries.h - attention to the keys of a window and to entries that stand for several earlier
 * positions each (DeepSeek V4): parameters of turn() of a backend, places of entries in a cache. */
#ifndef MODEL_SERVER_BACKEND_ENTRIES_H
#define MODEL_SERVER_BACKEND_ENTRIES_H
#include <stdbool.h>
#include <stdint.h>

/* Numbers [at, at + rot_dim) of each of the n_heads heads of a token rotate by the token's row of
 * `rope`, see struct rope_kv; with `back` by the negative angles. */
struct turn {
    uint32_t n_heads, dim, at, rot_dim;
    bool interleaved, back;
    const float *rope;
};

/* An entry of `every` positions is in the block of its last one. Its row there, if that position is
 * number `offset` of the block; and the rows of a block. */
static inline uint32_t entry_row(uint32_t offset, uint32_t every) { return offset / every; }
static inline uint32_t entry_rows(uint32_t block_size, uint32_t every)
{
    return (block_size + every - 1) / every;
}

/* Entries and keys of a token at position `at`: all complete ones, or `top` of them (0: all). */
static inline uint32_t entries_seen(uint32_t every, uint32_t top, uint32_t at)
{
    const uint32_t complete = (at + 1) / every;
    return top && complete > top ? top : complete;
}
#endif
