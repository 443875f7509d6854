#include "router/scheduler/seq.h"
#include "router/request/transfer.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

static bool copy_media(struct seq *q, const struct gen_request *r)
{
    if (r->n_media == 0)
        return true;
    if (!(q->media = calloc(r->n_media, sizeof(*q->media))))
        return false;
    for (uint32_t i = 0; i < r->n_media; i++) {
        const struct gen_medium *p = &r->media[i];
        assert(p->n > 0 && p->first < r->n_ids && p->n <= r->n_ids - p->first);
        assert(i == 0 || r->media[i - 1].first + r->media[i - 1].n <= p->first);
        q->media[i] = (struct kv_medium){p->first, p->n, p->digest};
    }
    q->n_media = r->n_media;
    return true;
}

struct seq *seq_new(struct gen_request *r, uint64_t id, uint32_t speculate)
{
    uint64_t cap = (uint64_t)r->n_ids + r->params.max_new_tokens + speculate + 1;
    if (cap > UINT32_MAX / 2)
        return NULL;
    struct seq *q = calloc(1, sizeof(*q) + cap * sizeof(q->tokens[0]));
    if (!q || !copy_media(q, r)) {
        free(q);
        return NULL;
    }
    q->req = r;
    q->id = id;
    q->state = SEQ_WAITING;
    q->cap_tokens = (uint32_t)cap;
    q->n_prompt = q->n_tokens = r->n_ids;
    if (r->n_ids)
        memcpy(q->tokens, r->ids, r->n_ids * sizeof(q->tokens[0]));
    const struct gen_resume *g = r->resume;
    for (uint32_t i = 0; g && i < g->n; i++)
        seq_push(q, g->ids[i]);
    q->n_lost = g ? g->n_lost : 0;
    q->exports = r->transfer && r->transfer->exports;
    q->n_preempted = g && g->begun;
    return q;
}

struct kv_media seq_media(const struct seq *q)
{
    const struct gen_request *r = q->req;
    struct kv_media m = {.v = q->media, .n = q->n_media, .whole = r->whole_media};
    if (r->whole_prompt) {
        m.prefix = r->n_ids;
        m.prompt = kv_media_prompt(m.v, m.n, r->ids, r->n_ids);
    }
    return m;
}

void seq_free(struct seq *q)
{
    assert(q->kv.len == 0 && q->n_slots == 0);
    free(q->slots);
    free(q->media);
    free(q);
}

/* Tokens beyond the requested number are dropped: they cost the peer cache hits, not us memory. */
void seq_push(struct seq *q, uint32_t token)
{
    assert(q->n_tokens <= q->cap_tokens && q->n_prompt <= q->n_tokens);
    if (q->n_tokens < q->cap_tokens)
        q->tokens[q->n_tokens++] = token;
}

static struct seq **slot(const struct seq_table *t, uint64_t id)
{
    return (struct seq **)&t->bucket[id % (sizeof(t->bucket) / sizeof(t->bucket[0]))];
}

void seq_table_add(struct seq_table *t, struct seq *q)
{
    assert(!seq_table_find(t, q->id)); /* answers identify requests by id only */
    struct seq **at = slot(t, q->id);
    q->chain = *at;
    *at = q;
    t->n++;
}

void seq_table_remove(struct seq_table *t, struct seq *q)
{
    struct seq **at = slot(t, q->id);
    assert(t->n > 0);
    while (*at != q) {
        assert(*at);
        at = &(*at)->chain;
    }
    *at = q->chain;
    t->n--;
}

struct seq *seq_table_find(const struct seq_table *t, uint64_t id)
{
    struct seq *q = *slot(t, id);
    while (q && q->id != id)
        q = q->chain;
    return q;
}
