#include "model-server/sample/tally.h"
#include "common/hash.h"
#include <stdlib.h>

static struct token_count *place(struct token_count *v, uint32_t cap, uint32_t id)
{
    uint32_t i = (uint32_t)hash_mix(id) & (cap - 1);
    while (v[i].all && v[i].id != id)
        i = (i + 1) & (cap - 1);
    return &v[i];
}

int tally_reserve(struct tally *t, uint32_t distinct, struct err *e)
{
    uint32_t cap = t->cap ? t->cap : 64;
    while (cap / 2 < distinct && cap < 1u << 31)
        cap *= 2;
    if (cap == t->cap)
        return 0;
    struct token_count *v = calloc(cap, sizeof(*v));
    if (!v)
        return err_nomem(e);
    for (uint32_t i = 0; i < t->cap; i++)
        if (t->v[i].all)
            *place(v, cap, t->v[i].id) = t->v[i];
    free(t->v);
    t->v = v;
    t->cap = cap;
    return 0;
}

int tally_add(struct tally *t, uint32_t id, bool generated, struct err *e)
{
    if (tally_reserve(t, t->n + 1, e))
        return -1;
    struct token_count *r = place(t->v, t->cap, id);
    t->n += r->all == 0;
    r->id = id;
    r->all++;
    r->generated += generated;
    t->length++;
    return 0;
}

void tally_free(struct tally *t)
{
    free(t->v);
    *t = (struct tally){0};
}

bool penalties_on(const struct penalties *p)
{
    return p->repetition != 1 || p->frequency != 0 || p->openai_presence != 0 ||
           p->openai_frequency != 0;
}

void penalties_apply(const struct penalties *p, const struct tally *t, float *s, size_t vocab)
{
    for (uint32_t i = 0; i < t->cap; i++) {
        const struct token_count *r = &t->v[i];
        if (!r->all || r->id >= vocab)
            continue;
        float x = s[r->id];
        if (p->repetition != 1)
            x = x < 0 ? x * p->repetition : x / p->repetition;
        if (p->frequency != 0)
            x -= p->frequency * (float)r->all / (float)t->length;
        if (r->generated)
            x -= p->openai_presence + p->openai_frequency * (float)r->generated;
        s[r->id] = x;
    }
}
