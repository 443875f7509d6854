/* token_classes.c - the class trie of a vocabulary: "cat" and "dog" share a path. */
#include "common/constraint/token_set_impl.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Bytes that most states do not distinguish: lower case, upper case, digits, control characters,
 * and UTF-8 bytes as in RFC 3629, 4. Each other byte is a class. */
static const struct {
    uint8_t first, last, like;
} alike[] = {
    {'a', 'z', 'a'},    {'A', 'Z', 'A'},    {'0', '9', '0'},    {0x00, 0x08, 0x00},
    {0x0b, 0x0c, 0x00}, {0x0e, 0x1f, 0x00}, {0x80, 0x8f, 0x80}, {0x90, 0x9f, 0x90},
    {0xa0, 0xbf, 0xa0}, {0xc0, 0xc1, 0xc0}, {0xf5, 0xff, 0xc0}, {0xc2, 0xdf, 0xc2},
    {0xe1, 0xec, 0xe1}, {0xee, 0xef, 0xe1}, {0xf1, 0xf3, 0xf1},
};

void byte_classes_fill(struct byte_classes *c)
{
    uint8_t like[256];
    memset(c, 0, sizeof(*c));
    for (unsigned b = 0; b < 256; b++)
        like[b] = (uint8_t)b;
    for (size_t i = 0; i < sizeof(alike) / sizeof(*alike); i++)
        for (unsigned b = alike[i].first; b <= alike[i].last; b++)
            like[b] = alike[i].like;
    for (unsigned b = 0; b < 256; b++) {
        c->of[b] = like[b] == b ? c->n++ : c->of[like[b]];
        assert(c->n <= BYTE_CLASSES);
        byte_set_add(&c->member[c->of[b]], b, b);
    }
}

/* ---------------------------------------------------------------- construction */

enum { NONE = 0 }; /* index 0 is the root, which is never a child */

struct growing {
    uint32_t child, sibling; /* NONE: none */
    uint32_t n_fine, n_ids;
    uint32_t at; /* index in the flat trie */
    uint8_t class_of;
};
struct build {
    struct growing *node; /* node[0]: the root */
    uint32_t n, cap;
    uint32_t *of; /* [fine nodes] the class node of each */
};

/* The child of `parent` for a class, created if missing; NONE: out of memory. */
static uint32_t child_of(struct build *b, uint32_t parent, uint8_t class_of)
{
    uint32_t i = b->node[parent].child;
    while (i != NONE && b->node[i].class_of != class_of)
        i = b->node[i].sibling;
    if (i != NONE)
        return i;
    if (b->n == b->cap) {
        struct growing *more = realloc(b->node, 2 * (size_t)b->cap * sizeof(*more));
        if (!more)
            return NONE;
        b->node = more;
        b->cap *= 2;
    }
    b->node[b->n] = (struct growing){.sibling = b->node[parent].child, .class_of = class_of};
    b->node[parent].child = b->n;
    return b->n++;
}

static int collect(struct build *b, const struct flat_trie *t)
{
    uint32_t open[TOKEN_BYTES + 1] = {0};
    for (uint32_t i = 0; i < t->n; i++) {
        const struct flat_node *n = &t->node[i];
        uint32_t at = child_of(b, open[n->depth - 1], n->class_of);
        if (at == NONE)
            return -1;
        open[n->depth] = b->of[i] = at;
        b->node[at].n_fine++;
        b->node[at].n_ids += n->n_ids;
    }
    return 0;
}

/* Numbers nodes depth first; each node's tokens and fine nodes become a contiguous range. */
static void number(struct build *b, struct class_trie *out)
{
    uint32_t way[TOKEN_BYTES + 1] = {0}, depth = 0, ids = 0, fine = 0;
    for (uint32_t i = b->node[0].child; i != NONE;) {
        struct growing *g = &b->node[i];
        way[++depth] = i;
        g->at = out->n;
        out->node[out->n++] = (struct class_node){.depth = (uint16_t)depth,
                                                  .class_of = g->class_of,
                                                  .ids = ids,
                                                  .fine = fine,
                                                  .n_fine = g->n_fine};
        ids += g->n_ids;
        fine += g->n_fine;
        i = g->child;
        while (i == NONE && depth) {
            out->node[b->node[way[depth]].at].past = out->n;
            i = b->node[way[depth--]].sibling;
        }
    }
}

static void distribute(const struct build *b, const struct flat_trie *t, struct class_trie *out)
{
    for (uint32_t i = 0; i < out->n; i++)
        out->node[i].n_fine = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        struct class_node *n = &out->node[b->node[b->of[i]].at];
        out->fine[n->fine + n->n_fine++] = i;
        memcpy(out->id + n->ids + n->n_ids, t->id + t->node[i].ids,
               t->node[i].n_ids * sizeof(*out->id));
        n->n_ids += t->node[i].n_ids;
    }
}

/* Nodes with very many tokens also store them as a bit set. */
static int make_dense(struct class_trie *t, uint32_t vocab)
{
    const size_t words = (vocab + (size_t)31) / 32;
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n; i++)
        n += t->node[i].n_ids > words / 4;
    t->dense = calloc(n * words + 1, sizeof(*t->dense));
    n = 0;
    for (uint32_t i = 0; t->dense && i < t->n; i++) {
        struct class_node *node = &t->node[i];
        if (node->n_ids <= words / 4)
            continue;
        uint32_t *bits = t->dense + n++ * words;
        node->dense = n;
        for (uint32_t k = 0; k < node->n_ids; k++)
            bits[t->id[node->ids + k] / 32] |= 1u << t->id[node->ids + k] % 32;
    }
    return t->dense ? 0 : -1;
}

int class_trie_fill(struct class_trie *out, const struct flat_trie *t, uint32_t vocab)
{
    enum { FIRST = 1024 };
    struct build b = {.node = calloc(FIRST, sizeof(*b.node)),
                      .n = 1,
                      .cap = FIRST,
                      .of = malloc((t->n + (size_t)1) * sizeof(*b.of))};
    int rc = b.node && b.of && collect(&b, t) == 0 ? 0 : -1;
    if (rc == 0) {
        out->node = calloc(b.n, sizeof(*out->node));
        out->fine = malloc((t->n + (size_t)1) * sizeof(*out->fine));
        out->id = malloc((t->node[t->n].ids + (size_t)1) * sizeof(*out->id));
        rc = out->node && out->fine && out->id ? 0 : -1;
    }
    if (rc == 0) {
        number(&b, out);
        distribute(&b, t, out);
        rc = make_dense(out, vocab);
    }
    free(b.node);
    free(b.of);
    return rc;
}

void class_trie_free(struct class_trie *t)
{
    free(t->node);
    free(t->fine);
    free(t->id);
    free(t->dense);
    *t = (struct class_trie){0};
}
