/* bpe_impl.h - private to bpe_load.c and bpe.c. */
#ifndef COMMON_TOKENIZER_BPE_IMPL_H
#define COMMON_TOKENIZER_BPE_IMPL_H
#include "common/hash.h"
#include "common/tokenizer/bpe.h"

#define NO_PAIR UINT64_MAX

static inline uint64_t bpe_pair(uint32_t left, uint32_t right)
{
    return (uint64_t)left << 32 | right;
}

/* Where the search for a pair begins. */
static inline uint64_t bpe_home(const struct bpe *b, uint64_t pair)
{
    return hash_mix(pair ^ b->vocab->seed) & b->mask;
}

/* The slot of a pair, or the free slot for it. */
static inline uint64_t bpe_slot(const struct bpe *b, uint64_t pair)
{
    uint64_t i = bpe_home(b, pair);
    while (b->merge[i].pair != pair && b->merge[i].pair != NO_PAIR)
        i = (i + 1) & b->mask;
    return i;
}

static inline const struct bpe_merge *bpe_find(const struct bpe *b, uint32_t left, uint32_t right)
{
    const struct bpe_merge *m = &b->merge[bpe_slot(b, bpe_pair(left, right))];
    return m->pair == NO_PAIR ? NULL : m;
}
#endif
