#include "common/tokenizer/trie.h"
#include "common/clock.h"
#include <stdlib.h>
#include <string.h>

void trie_free(struct trie *t)
{
    free(t->edge);
    free(t->value);
    *t = (struct trie){0};
}

static int grow_edges(struct trie *t)
{
    uint64_t cap = t->edge ? (t->mask + 1) * 2 : 1024, n = t->edge ? t->mask + 1 : 0;
    struct trie_edge *old = t->edge, *new = calloc(cap, sizeof *new);
    if (!new)
        return -1;
    for (uint64_t k = 0; k < n; k++) {
        uint64_t i = hash_mix(old[k].key ^ t->seed) & (cap - 1);
        if (!old[k].key)
            continue;
        while (new[i].key)
            i = (i + 1) & (cap - 1);
        new[i] = old[k];
    }
    free(old);
    t->edge = new;
    t->mask = cap - 1;
    return 0;
}

static uint32_t new_node(struct trie *t)
{
    if (t->nodes == t->cap) {
        uint32_t cap = t->cap ? t->cap * 2 : 1024;
        uint32_t *v = realloc(t->value, cap * sizeof *v);
        if (!v)
            return TRIE_NONE;
        t->value = v;
        t->cap = cap;
    }
    t->value[t->nodes] = TRIE_NONE;
    return t->nodes++;
}

static int start(struct trie *t)
{
    memset(t->root, 0xFF, sizeof t->root);
    t->seed = (uint64_t)clock_ns() ^ (uintptr_t)t;
    return grow_edges(t) == 0 && new_node(t) == 0 ? 0 : -1;
}

static uint32_t extend(struct trie *t, uint32_t node, unsigned char byte)
{
    uint32_t to;
    if (t->nodes >= t->mask / 2 && grow_edges(t) != 0)
        return TRIE_NONE;
    if ((to = new_node(t)) == TRIE_NONE)
        return TRIE_NONE;
    if (!node)
        return t->root[byte] = to;
    uint64_t key = ((uint64_t)node << 8 | byte) + 1, i = hash_mix(key ^ t->seed) & t->mask;
    while (t->edge[i].key)
        i = (i + 1) & t->mask;
    t->edge[i] = (struct trie_edge){key, to};
    return to;
}

int trie_add(struct trie *t, const char *s, size_t n, uint32_t value)
{
    uint32_t node = 0;
    if (!t->nodes && start(t) != 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        uint32_t to = trie_step(t, node, (unsigned char)s[i]);
        if (to == TRIE_NONE && (to = extend(t, node, (unsigned char)s[i])) == TRIE_NONE)
            return -1;
        node = to;
    }
    if (t->value[node] == TRIE_NONE)
        t->value[node] = value;
    return 0;
}
