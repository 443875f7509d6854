#include "common/tokenizer/frame.h"
#include "common/tokenizer/tokenizer_impl.h"
#include <string.h>

uint32_t tok_frame_special(const struct tokenizer *t, bool pair)
{
    uint32_t n = 0;
    for (uint32_t i = 0; pair && i < t->post.pair_n; i++)
        n += t->post.pair[i].text == POST_SPECIAL;
    return pair ? n : t->post.before_n + t->post.after_n;
}

static void cut(struct tok_part *p, uint32_t most, bool left)
{
    if (p->n <= most)
        return;
    p->id += left ? p->n - most : 0;
    p->n = most;
}

void tok_frame_cut(struct tok_part *a, struct tok_part *b, uint32_t most, bool left)
{
    if (!b) {
        cut(a, most, left);
        return;
    }
    if (a->n + (uint64_t)b->n <= most)
        return;
    struct tok_part *shorter = a->n > b->n ? b : a, *longer = a->n > b->n ? a : b;
    uint32_t for_shorter = most / 2, for_longer = most - most / 2;
    if (shorter->n <= for_shorter) {
        for_shorter = shorter->n;
        for_longer = most - shorter->n;
    }
    cut(shorter, for_shorter, left);
    cut(longer, for_longer, left);
}

uint32_t tok_frame_first(const struct tokenizer *t, const struct tok_part *a,
                         const struct tok_part *b)
{
    const struct post *p = &t->post;
    uint32_t n = b ? 0 : p->before_n;
    for (uint32_t i = 0; b && i < p->pair_n && p->pair[i].text != POST_SECOND; i++)
        n += p->pair[i].text == POST_FIRST ? a->n : 1;
    return n;
}

struct writer {
    uint32_t *ids;
    uint8_t *types;
    uint32_t n;
};

static void put(struct writer *w, const uint32_t *id, uint32_t n, uint8_t type)
{
    if (n)
        memcpy(w->ids + w->n, id, n * sizeof(*id));
    if (n && w->types)
        memset(w->types + w->n, type, n);
    w->n += n;
}

void tok_frame(const struct tokenizer *t, const struct tok_part *a, const struct tok_part *b,
               uint32_t *ids, uint8_t *types)
{
    const struct post *p = &t->post;
    struct writer w = {ids, types, 0};
    if (!b) {
        put(&w, p->before, p->before_n, 0);
        put(&w, a->id, a->n, 0);
        for (uint32_t i = 0; i < p->after_n; i++)
            put(&w, &p->after[i], 1, p->after_types[i]);
        return;
    }
    for (uint32_t i = 0; i < p->pair_n; i++) {
        const struct post_item *item = &p->pair[i];
        if (item->text == POST_SPECIAL)
            put(&w, &item->id, 1, item->type);
        else
            put(&w, item->text == POST_FIRST ? a->id : b->id,
                item->text == POST_FIRST ? a->n : b->n, item->type);
    }
}

const uint8_t *tok_frame_types(const uint8_t *types, uint32_t n)
{
    uint8_t any = 0;
    for (uint32_t i = 0; i < n; i++)
        any |= types[i];
    return any ? types : NULL;
}
