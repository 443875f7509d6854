/* trie.h - a trie of byte strings with numbers: one walk finds all entries that begin at a position
 * of a text. */
#ifndef COMMON_TOKENIZER_TRIE_H
#define COMMON_TOKENIZER_TRIE_H
#include "common/hash.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRIE_NONE UINT32_MAX

struct trie {
    struct trie_edge {
        /* node << 8 | byte, + 1; 0: free slot */
        uint64_t key;
        uint32_t to;
    } * edge; /* hash table with open addressing */
    uint64_t mask, seed;
    uint32_t *value; /* by node; TRIE_NONE: no entry ends here */
    uint32_t nodes, cap;
    uint32_t root[256]; /* children of the root, without hashing */
};

/* An empty trie is zeroed, and is so again afterwards. */
void trie_free(struct trie *t);
/* Adds an entry; an existing one keeps its number. -1: out of memory. */
int trie_add(struct trie *t, const char *s, size_t n, uint32_t value);
static inline bool trie_empty(const struct trie *t) { return !t->nodes; }

/* The child of `node` (0: the root) for a byte; TRIE_NONE: none. */
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

/* The longest entry that is a prefix of s[0..n): its number, and its length in *len; TRIE_NONE:
 * none. */
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
