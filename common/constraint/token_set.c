/* token_set.c - sorted texts, then one pass that turns common beginnings into nodes. */
#include "common/constraint/token_set_impl.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 1024 }; /* longer tokens are never allowed */

struct entry {
    struct token_text text;
    uint32_t id;
};

static int by_text(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
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

/* Nodes of sorted entries: each brings those behind what it shares with the one before. */
static int flatten(struct flat_trie *t, const struct entry *e, uint32_t n)
{
    size_t nodes = 0;
    uint32_t open[MAX_BYTES + 1] = {0};
    for (uint32_t i = 0; i < n; i++)
        nodes += e[i].text.n - (i ? common_bytes(&e[i - 1].text, &e[i].text) : 0);
    t->node = calloc(nodes + 1, sizeof(*t->node));
    t->id = malloc((n + (size_t)1) * sizeof(*t->id));
    if (!t->node || !t->id || nodes > UINT32_MAX - 1)
        return -1;
    for (uint32_t i = 0; i < n; i++) {
        const struct token_text *text = &e[i].text;
        uint32_t same = i ? common_bytes(&e[i - 1].text, text) : 0;
        for (uint32_t d = i ? e[i - 1].text.n : 0; d > same; d--)
            t->node[open[d]].past = t->n;
        for (uint32_t d = same; d < text->n; d++) {
            open[d + 1] = t->n;
            t->node[t->n++] = (struct flat_node){
                .depth = (uint16_t)(d + 1), .byte = (uint8_t)text->bytes[d], .ids = i};
        }
        t->node[open[text->n]].n_ids++;
        t->id[i] = e[i].id;
    }
    for (uint32_t d = n ? e[n - 1].text.n : 0; d > 0; d--)
        t->node[open[d]].past = t->n;
    return 0;
}

static bool plain_text(const struct token_text *t)
{
    for (uint32_t i = 0; i < t->n; i++)
        if (!plain_byte((uint8_t)t->bytes[i]))
            return false;
    return true;
}

static int fill(struct token_set *t, const struct token_text *text, struct entry *e)
{
    for (int plain = 0; plain < 2; plain++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < t->vocab; i++) {
            if (!text[i].n || text[i].n > MAX_BYTES || plain_text(&text[i]) != plain)
                continue;
            e[n++] = (struct entry){text[i], i};
            t->longest = text[i].n > t->longest ? text[i].n : t->longest;
            if (plain)
                t->plain_mask[i / 32] |= 1u << i % 32;
        }
        qsort(e, n, sizeof(*e), by_text);
        if (flatten(plain ? &t->plain : &t->rest, e, n))
            return -1;
    }
    return 0;
}

struct token_set *token_set_new(const struct token_text *text, uint32_t vocab, const uint32_t *end,
                                uint32_t n_end)
{
    struct token_set *t = calloc(1, sizeof(*t));
    struct entry *e = malloc((vocab + (size_t)1) * sizeof(*e));
    if (t) {
        t->vocab = vocab;
        t->plain_mask = calloc(vocab / 32 + (size_t)1, sizeof(*t->plain_mask));
        t->end = malloc((n_end + (size_t)1) * sizeof(*t->end));
    }
    bool ok = t && e && t->plain_mask && t->end && !fill(t, text, e);
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
    free(t->plain.node);
    free(t->plain.id);
    free(t->rest.node);
    free(t->rest.id);
    free(t->plain_mask);
    free(t->end);
    free(t);
}

uint32_t token_set_size(const struct token_set *t) { return t->vocab; }
