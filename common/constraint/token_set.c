/* token_set.c - sorts the texts and builds the trie from common prefixes in one pass. */
#include "common/constraint/token_set_impl.h"
#include <stdlib.h>
#include <string.h>

struct trie_entry {
    struct token_text text;
    uint32_t id;
};

static int by_text(const void *a, const void *b)
{
    const struct trie_entry *x = a, *y = b;
    uint32_t n = x->text.n < y->text.n ? x->text.n : y->text.n;
    int c = memcmp(x->text.bytes, y->text.bytes, n);
    if (c || x->text.n != y->text.n)
        return c ? c : x->text.n < y->text.n ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static uint32_t common_bytes(const struct token_text *a, const struct token_text *b)
{
    uint32_t n = a->n < b->n ? a->n : b->n, i = 0;
    while (i < n && a->bytes[i] == b->bytes[i])
        i++;
    return i;
}

/* Builds nodes from sorted entries: each adds nodes for what it does not share with its
 * predecessor. */
static int flatten(struct flat_trie *t, const struct trie_entry *e, uint32_t n,
                   const struct byte_classes *classes)
{
    size_t nodes = 0;
    uint32_t open[TOKEN_BYTES + 1] = {0};
    for (uint32_t i = 0; i < n; i++)
        nodes += e[i].text.n - (i ? common_bytes(&e[i - 1].text, &e[i].text) : 0);
    t->node = calloc(nodes + 1, sizeof(*t->node));
    t->id = malloc((n + (size_t)1) * sizeof(*t->id));
    t->up = malloc((nodes + 1) * sizeof(*t->up));
    t->leaf = malloc((n + (size_t)1) * sizeof(*t->leaf));
    if (!t->node || !t->id || !t->up || !t->leaf || nodes > UINT32_MAX - 1)
        return -1;
    for (uint32_t i = 0; i < n; i++) {
        const struct token_text *text = &e[i].text;
        uint32_t same = i ? common_bytes(&e[i - 1].text, text) : 0;
        for (uint32_t d = i ? e[i - 1].text.n : 0; d > same; d--)
            t->node[open[d]].past = t->n;
        for (uint32_t d = same; d < text->n; d++) {
            uint8_t byte = (uint8_t)text->bytes[d];
            open[d + 1] = t->n;
            t->up[t->n] = open[d];
            t->node[t->n++] = (struct flat_node){
                .depth = (uint16_t)(d + 1), .byte = byte, .class_of = classes->of[byte], .ids = i};
        }
        t->leaf[i] = open[text->n];
        t->node[open[text->n]].n_ids++;
        t->id[i] = e[i].id;
    }
    for (uint32_t d = n ? e[n - 1].text.n : 0; d > 0; d--)
        t->node[open[d]].past = t->n;
    t->node[t->n].ids = n;
    return 0;
}

static bool plain_text(const struct token_text *t)
{
    for (uint32_t i = 0; i < t->n; i++)
        if (!plain_byte((uint8_t)t->bytes[i]))
            return false;
    return true;
}

static int fill(struct token_set *t, const struct token_text *text, struct trie_entry *e,
                const struct byte_classes *classes)
{
    for (int plain = 0; plain < 2; plain++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < t->vocab; i++) {
            if (!text[i].n || text[i].n > TOKEN_BYTES || plain_text(&text[i]) != plain)
                continue;
            e[n++] = (struct trie_entry){text[i], i};
            t->longest = text[i].n > t->longest ? text[i].n : t->longest;
            if (plain)
                t->plain_mask[i / 32] |= 1u << i % 32;
        }
        qsort(e, n, sizeof(*e), by_text);
        struct flat_trie *fine = plain ? &t->plain : &t->rest;
        struct class_trie *by_class = plain ? &t->plain_classes : &t->rest_classes;
        if (flatten(fine, e, n, classes) || class_trie_fill(by_class, fine, t->vocab))
            return -1;
        for (uint32_t i = 0; i < n; i++)
            t->place[e[i].id] = i;
    }
    return 0;
}

struct token_set *token_set_new(const struct token_text *text, uint32_t vocab, const uint32_t *end,
                                uint32_t n_end)
{
    struct byte_classes classes;
    struct token_set *t = calloc(1, sizeof(*t));
    struct trie_entry *e = malloc((vocab + (size_t)1) * sizeof(*e));
    byte_classes_fill(&classes);
    if (t) {
        t->vocab = vocab;
        t->plain_mask = calloc(vocab / 32 + (size_t)1, sizeof(*t->plain_mask));
        t->place = malloc((vocab + (size_t)1) * sizeof(*t->place));
        if (t->place)
            memset(t->place, 0xff, (vocab + (size_t)1) * sizeof(*t->place));
        t->end = malloc((n_end + (size_t)1) * sizeof(*t->end));
    }
    bool ok = t && e && t->plain_mask && t->place && t->end && !fill(t, text, e, &classes);
    for (uint32_t i = 0; ok && i < n_end; i++)
        if (end[i] < vocab)
            t->end[t->n_end++] = end[i];
    free(e);
    if (!ok) {
        token_set_free(t);
        return NULL;
    }
    return t;
}

void token_set_free(struct token_set *t)
{
    if (!t)
        return;
    flat_trie_free(&t->plain);
    flat_trie_free(&t->rest);
    class_trie_free(&t->plain_classes);
    class_trie_free(&t->rest_classes);
    free(t->plain_mask);
    free(t->place);
    free(t->end);
    free(t);
}

/* ---------------------------------------------------------------- subsets */

void flat_trie_free(struct flat_trie *t)
{
    free(t->node);
    free(t->id);
    free(t->up);
    free(t->leaf);
    *t = (struct flat_trie){0};
}

/* Wanted tokens of a trie, by index in its `id`. */
struct places {
    uint64_t *bits;
    uint32_t n; /* number of indices */
};

static uint32_t next_place(const struct places *p, uint32_t from)
{
    if (from >= p->n)
        return p->n;
    uint32_t w = from / 64;
    uint64_t left = p->bits[w] & (UINT64_MAX << from % 64);
    while (!left && ++w <= (p->n - 1) / 64)
        left = p->bits[w];
    return left ? w * 64 + (uint32_t)__builtin_ctzll(left) : p->n;
}

/* Appends a node; NULL: out of memory. */
static struct flat_node *more(struct flat_trie *t, size_t *cap)
{
    if (t->n == *cap) {
        size_t now = *cap ? 2 * *cap : 512;
        struct flat_node *node = realloc(t->node, now * sizeof(*node));
        if (!node)
            return NULL;
        t->node = node;
        *cap = now;
    }
    return &t->node[t->n++];
}

/* Appends the wanted tokens of `from`, in text order; `out->id` must be large enough. */
static int pick(struct flat_trie *out, size_t *cap, uint32_t *n_ids, const struct flat_trie *from,
                const struct places *wanted)
{
    uint32_t way[TOKEN_BYTES + 1], made[TOKEN_BYTES + 1] = {0}, depth = 0;
    for (uint32_t p = next_place(wanted, 0); p < wanted->n; p = next_place(wanted, p + 1)) {
        uint32_t to = from->node[from->leaf[p]].depth, same = to;
        for (uint32_t i = from->leaf[p]; same && (same > depth || way[same] != i); i = from->up[i])
            way[same--] = i;
        for (; depth > same; depth--)
            out->node[made[depth]].past = out->n;
        while (depth < to) {
            const struct flat_node *n = &from->node[way[++depth]];
            made[depth] = out->n;
            struct flat_node *copy = more(out, cap);
            if (!copy)
                return -1;
            *copy = (struct flat_node){
                .depth = n->depth, .byte = n->byte, .class_of = n->class_of, .ids = *n_ids};
        }
        out->node[made[depth]].n_ids++;
        out->id[(*n_ids)++] = from->id[p];
    }
    for (; depth > 0; depth--)
        out->node[made[depth]].past = out->n;
    return 0;
}

/* Converts the bits of tokens in `t` (`plain`: the plain trie) to indices. */
static struct places places_of(const struct token_set *s, const struct flat_trie *t, bool plain,
                               const uint32_t *wanted, uint64_t *bits)
{
    struct places p = {bits, t->node[t->n].ids};
    memset(bits, 0, (p.n / 64 + (size_t)1) * sizeof(*bits));
    for (uint32_t w = 0; w < (s->vocab + 31) / 32; w++) {
        uint32_t left = wanted[w] & (plain ? s->plain_mask[w] : ~s->plain_mask[w]);
        for (; left; left &= left - 1) {
            uint32_t place = s->place[w * 32 + (uint32_t)__builtin_ctz(left)];
            if (place != NO_PLACE)
                bits[place / 64] |= UINT64_C(1) << place % 64;
        }
    }
    return p;
}

int flat_trie_pick(struct flat_trie *out, const struct token_set *from, const uint32_t *wanted)
{
    size_t cap = 0, n = 0;
    uint32_t n_ids = 0;
    uint64_t *bits = malloc((from->vocab / 64 + (size_t)1) * sizeof(*bits));
    for (uint32_t w = 0; w < (from->vocab + 31) / 32; w++)
        n += (size_t)__builtin_popcount(wanted[w]);
    *out = (struct flat_trie){.id = malloc((n + 1) * sizeof(*out->id))};
    bool ok = bits && out->id;
    for (int plain = 1; ok && plain >= 0; plain--) {
        const struct flat_trie *t = plain ? &from->plain : &from->rest;
        struct places places = places_of(from, t, plain, wanted, bits);
        ok = pick(out, &cap, &n_ids, t, &places) == 0;
    }
    free(bits);
    if (!ok)
        flat_trie_free(out);
    return ok ? 0 : -1;
}
