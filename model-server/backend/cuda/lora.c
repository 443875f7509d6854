/* lora.c - adapters: tables of their updates on the device, and the two launches that apply them
 * in a step.
 *
 * There is a table for each list of lora_sets that lora() is called with (a matrix of a layer).
 * It is updated by comparing the list's entries for the adapters of this step with those sent
 * last. Adapters may be loaded or evicted between steps, and their rows may move. The launches
 * refer only to the table and the batch record, so a step of the same sizes is replayed with any
 * adapters. */
#include "model-server/backend/cuda/cuda.h"
#include <stdlib.h>
#include <string.h>

/* A set as it was sent: `rows` are those of a and b of each part, alternating; the same on the
 * device. */
struct lora_known {
    struct lora_set set;
    const void **rows;
    char *dev;
    uint32_t n_rows, cap_rows;
};

enum { CHUNK = 1 << 20, USUAL_RANK = 64 };

void lora_tables_free(struct device *d)
{
    struct lora_tables *l = &d->lora;
    for (uint32_t i = 0; i < l->n; i++) {
        for (uint32_t a = 0; a < l->v[i].cap; a++)
            free(l->v[i].known[a].rows);
        free(l->v[i].known);
        cudaFree(l->v[i].dev);
    }
    for (uint32_t i = 0; i < l->n_chunks; i++)
        cudaFree(l->chunks[i]);
    free(l->v), free(l->chunks);
    *l = (struct lora_tables){0};
}

/* Device memory that is freed with the device. */
static char *list_room(struct device *d, size_t bytes)
{
    struct lora_tables *l = &d->lora;
    if (bytes > l->left) {
        char **all = realloc(l->chunks, ((size_t)l->n_chunks + 1) * sizeof(*all));
        if (!all)
            return err_nomem(&d->fault), NULL;
        l->chunks = all;
        char *p = cuda_take(d, CHUNK, "lists of adapters' rows", "lower --cuda-memory-fraction",
                            &d->fault);
        if (!p)
            return NULL;
        l->chunks[l->n_chunks++] = p, l->left = CHUNK;
    }
    l->left -= bytes;
    return l->chunks[l->n_chunks - 1] + l->left;
}

/* Tables are asked for in the same order in every step. */
static struct lora_table *table_of(struct device *d, const struct lora_set *key)
{
    struct lora_tables *l = &d->lora;
    for (uint32_t i = 0; i < l->n; i++) {
        uint32_t at = (l->next + i) % l->n;
        if (l->v[at].key == key) {
            l->next = at + 1;
            return &l->v[at];
        }
    }
    struct lora_table *all = realloc(l->v, ((size_t)l->n + 1) * sizeof(*all));
    if (!all)
        return err_nomem(&d->fault), NULL;
    l->v = all;
    l->next = l->n + 1;
    l->v[l->n] = (struct lora_table){.key = key};
    return &l->v[l->n++];
}

/* Capacity for adapters 0 .. most; sets that were sent are sent again. */
static int reserve(struct device *d, struct lora_table *t, uint32_t most)
{
    uint32_t cap = 8;
    if (most < t->cap)
        return 0;
    while (cap <= most)
        cap *= 2;
    struct lora_view *dev = cuda_take(d, cap * sizeof(*dev), "tables of adapters",
                                      "lower --cuda-memory-fraction", &d->fault);
    struct lora_known *known = calloc(cap, sizeof(*known));
    if (!dev || !known) {
        cudaFree(dev);
        free(known);
        return d->fault.kind == ERR_NONE ? err_nomem(&d->fault) : -1;
    }
    if (t->cap)
        memcpy(known, t->known, t->cap * sizeof(*known));
    for (uint32_t i = 0; i < cap; i++)
        known[i].set.n_parts = LORA_MAX_PARTS + 1; /* unequal to any set: nothing was sent */
    free(t->known);
    cudaFree(t->dev); /* waits for what uses it */
    t->known = known, t->dev = dev, t->cap = cap;
    return 0;
}

static bool same_rows(const struct lora_known *k, const struct lora_set *s)
{
    uint32_t at = 0;
    for (uint32_t p = 0; p < s->n_parts; p++) {
        const struct lora *now = &s->part[p], *then = &k->set.part[p];
        if (now->rank != then->rank || now->first != then->first || now->n != then->n ||
            now->dtype != then->dtype || now->scale != then->scale ||
            memcmp(k->rows + at, now->a, now->rank * sizeof(*now->a)) ||
            memcmp(k->rows + at + now->rank, now->b, now->rank * sizeof(*now->b)))
            return false;
        at += 2 * now->rank;
    }
    return true;
}

/* Copy what `s` says to *k and to the device. */
static int send(struct device *d, struct lora_known *k, struct lora_view *dev,
                const struct lora_set *s)
{
    struct lora_view v = {.n_parts = s->n_parts};
    uint32_t n = 0;
    for (uint32_t p = 0; p < s->n_parts; p++)
        n += 2 * s->part[p].rank;
    if (n > k->cap_rows) { /* the first time: an adapter does not change its ranks */
        const void **rows = realloc(k->rows, n * sizeof(*rows));
        if (!rows)
            return err_nomem(&d->fault);
        k->rows = rows;
        if (!(k->dev = list_room(d, n * sizeof(*rows))))
            return -1;
        k->cap_rows = n;
    }
    n = 0;
    for (uint32_t p = 0; p < s->n_parts; p++) {
        const struct lora *l = &s->part[p];
        const void *const *rows = (const void *const *)(void *)k->dev;
        v.part[p] = (struct lora_part){rows + n, rows + n + l->rank, l->rank,  l->first,
                                       l->n,     l->dtype,           l->scale, 0};
        memcpy(k->rows + n, l->a, l->rank * sizeof(*l->a));
        memcpy(k->rows + n + l->rank, l->b, l->rank * sizeof(*l->b));
        n += 2 * l->rank;
    }
    k->set = *s;
    if (n && cuda_upload_first(d, k->dev, k->rows, n * sizeof(*k->rows), &d->fault))
        return -1;
    return cuda_upload_first(d, dev, &v, sizeof(v), &d->fault);
}

/* The current sets of this step's adapters; the maximum of ranks and outputs of a part. */
static int update(struct device *d, struct lora_table *t, const struct lora_set *of,
                  struct lora_args *a)
{
    const struct batch_record *b = &d->b;
    uint32_t most = 0;
    for (uint32_t i = 0; i < b->n_lora; i++)
        most = b->host_lora[i].adapter > most ? b->host_lora[i].adapter : most;
    if (reserve(d, t, most))
        return -1;
    for (uint32_t i = 0, before = 0; i < b->n_lora; i++) {
        const uint32_t adapter = b->host_lora[i].adapter;
        const struct lora_set *s = &of[adapter];
        if (adapter == before)
            continue;
        before = adapter;
        struct lora_known *k = &t->known[adapter];
        if ((k->set.n_parts != s->n_parts || !same_rows(k, s)) && send(d, k, &t->dev[adapter], s))
            return -1;
        for (uint32_t p = 0; p < s->n_parts; p++) {
            a->rank = s->part[p].rank > a->rank ? s->part[p].rank : a->rank;
            a->outs = s->part[p].n > a->outs ? s->part[p].n : a->outs;
        }
    }
    return 0;
}

void cuda_lora(struct device *d, float *y, uint32_t y_width, const float *x, uint32_t x_width,
               const struct lora_set *of)
{
    const struct batch_record *b = &d->b;
    struct lora_args a = {.y = y, .x = x, .tiles = b->lora, .y_width = y_width};
    if (d->rehearsal) { /* for adapters that are not loaded yet; higher ranks allocate more when
                           they arrive */
        cuda_work(d, WORK_LORA,
                  (size_t)(d->batch->n_tokens + LORA_TOKENS) * LORA_MAX_PARTS * USUAL_RANK *
                      sizeof(float));
        return;
    }
    struct lora_table *t = b->n_lora && d->fault.kind == ERR_NONE ? table_of(d, of) : NULL;
    if (!t || update(d, t, of, &a) || !a.rank)
        return;
    a.of = t->dev, a.x_width = x_width, a.n_tiles = b->n_lora;
    a.rank = (a.rank + LORA_RANKS - 1) / LORA_RANKS * LORA_RANKS; /* so that graphs last */
    a.u = cuda_work(d, WORK_LORA,
                    (size_t)a.n_tiles * LORA_TOKENS * LORA_MAX_PARTS * a.rank * sizeof(*a.u));
    if (!a.u)
        return;
    RECORD(d, lora_down_launch, a);
    RECORD(d, lora_up_launch, a);
}
