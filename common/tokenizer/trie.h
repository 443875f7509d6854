/* trie.h - byte strings and their numbers, walked byte by byte: all entries that begin at a place
 * of a text are found in one walk that stops where no entry goes on. */
#ifndef COMMON_TOKENIZER_TRIE_H
#define COMMON_TOKENIZER_TRIE_H
#include "common/hash.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRIE_NONE UINT32_MAX

struct trie {
    struct trie_edge {
        uint64_t key; /* node << 8 | byte, + 1; 0: free */
        uint32_t to;
    } * edge; /* open addressing */
    uint64_t mask, seed;
    uint32_t *value; /* by node; TRIE_NONE: no entry ends here */
    uint32_t nodes, cap;
    uint32_t root[256]; /* children of the root: the first step needs no hashing */
};

void trie_free(struct trie *t);
/* Adds an entry; one that is there keeps its number. -1: out of memory. */
int trie_add(struct trie *t, const char *s, size_t n, uint32_t value);
static inline bool trie_empty(const struct trie *t) { return !t->nodes; }

/* The node behind `node` (0: the root) for one more byte; TRIE_NONE: no entry goes there. */
static inline uint32_t trie_step(const struct trie *t, uint32_t node, unsigned char byte)
{
    if (!node)
        return t->root[byte];
    uint64_t key = ((uint64_t)node << 8 | byte) + 1;
    for (uint64_t i = hash_mix(key ^ t->seed) & t->mask; t->edge[i].key; i = (i + 1) & t->mask)
        if (t->edge[i].key == key)
            return t->edge[i].to;
    return TRIE_NONE;
}

/* The longest entry that s[0..n) begins with: its number, and its bytes in *len; TRIE_NONE: none.
 */
static inline uint32_t trie_longest(const struct trie *t, const char *s, uint32_t n, uint32_t *len)
{
    uint32_t node = 0, found = TRIE_NONE;
    if (trie_empty(t))
        return TRIE_NONE;
    for (uint32_t i = 0; i < n;) {
        node = trie_step(t, node, (unsigned char)s[i++]);
        if (node == TRIE_NONE)
            break;
        if (t->value[node] != TRIE_NONE) {
            found = t->value[node];
            *len = i;
        }
    }
    return found;
}
#endif
