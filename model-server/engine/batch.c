#include "model-server/engine/batch.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct batch *batch_new(uint64_t id, struct err *e)
{
    struct batch *b = calloc(1, sizeof(*b));
    if (!b)
        err_nomem(e);
    else
        b->id = id;
    return b;
}

void batch_free(struct batch *b)
{
    if (!b)
        return;
    for (uint32_t i = 0; i < b->n; i++)
        seq_free(b->v[i]);
    free(b->v);
    free(b);
}

int batch_reserve(struct batch *b, uint32_t n, struct err *e)
{
    if (n <= b->cap)
        return 0;
    struct seq **v = realloc(b->v, n * sizeof(struct seq *));
    if (!v)
        return err_nomem(e);
    b->v = v;
    b->cap = n;
    return 0;
}

void batch_add(struct batch *b, struct seq *s)
{
    assert(b->n < b->cap);
    b->v[b->n++] = s;
}

/* Index of request `id` in v[from ..]; n if absent. Requests mostly keep their order, so the
 * search usually ends at its first step. */
static uint32_t find(struct seq **v, uint32_t from, uint32_t n, uint64_t id)
{
    while (from < n && v[from]->id != id)
        from++;
    return from;
}

int batch_filter(struct batch *b, const uint64_t *ids, size_t n, struct err *e)
{
    if (!n)
        return err_set(e, ERR_VALIDATION, "Batch must have at least one request");
    struct seq **v = malloc(b->n * sizeof(struct seq *));
    if (!v)
        return err_nomem(e);
    memcpy(v, b->v, b->n * sizeof(struct seq *));
    for (size_t k = 0; k < n; k++) { /* v[0 .. k): kept; v[k .. n): not yet placed */
        uint32_t at = k < b->n ? find(v, (uint32_t)k, b->n, ids[k]) : b->n;
        if (at == b->n) {
            free(v);
            return err_set(e, ERR_VALIDATION, "Request ID %llu not found in batch %llu.",
                           (unsigned long long)ids[k], (unsigned long long)b->id);
        }
        struct seq *s = v[at];
        memmove(v + k + 1, v + k, (at - k) * sizeof(struct seq *));
        v[k] = s;
    }
    assert(n <= b->n); /* each id was found exactly once */
    for (size_t k = n; k < b->n; k++)
        seq_free(v[k]);
    memcpy(b->v, v, n * sizeof(struct seq *));
    b->n = (uint32_t)n;
    free(v);
    return 0;
}

struct seq *batch_find(const struct batch *b, uint64_t id)
{
    uint32_t at = find(b->v, 0, b->n, id);
    return at < b->n ? b->v[at] : NULL;
}

void batch_drop(struct batch *b, uint64_t id)
{
    uint32_t at = find(b->v, 0, b->n, id);
    assert(at < b->n);
    seq_free(b->v[at]);
    b->n--;
    memmove(b->v + at, b->v + at + 1, (b->n - at) * sizeof(struct seq *));
}

void batch_drop_failed(struct batch *b, struct batch *out)
{
    uint32_t kept = 0;
    assert(out != b);
    for (uint32_t i = 0; i < b->n; i++)
        if (b->v[i]->error[0])
            batch_add(out, b->v[i]);
        else
            b->v[kept++] = b->v[i];
    b->n = kept;
}

bool batch_over(const struct batch *b)
{
    for (uint32_t i = 0; i < b->n; i++)
        if (seq_live(b->v[i]))
            return false;
    return true;
}

uint32_t batch_max_tokens(const struct batch *b, uint32_t block_size)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < b->n; i++)
        n += (uint64_t)b->v[i]->n_blocks * block_size;
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

uint32_t batch_current_tokens(const struct batch *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n; i++)
        n += seq_live(b->v[i]) ? b->v[i]->step : 0;
    return n;
}

struct batch *batches_find(const struct batches *a, uint64_t id)
{
    struct batch *b = a->head;
    while (b && b->id != id)
        b = b->next;
    return b;
}

int batches_find_all(const struct batches *a, const uint64_t *ids, size_t n, struct batch **out,
                     struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = batches_find(a, ids[i]);
        for (size_t j = 0; j < i && out[i]; j++)
            if (out[j] == out[i])
                out[i] = NULL;
        if (!out[i])
            return err_set(e, ERR_VALIDATION, "Batch ID %llu not found in cache.",
                           (unsigned long long)ids[i]);
    }
    return 0;
}

struct batch *batches_take(struct batches *a, uint64_t id)
{
    for (struct batch **p = &a->head; *p; p = &(*p)->next)
        if ((*p)->id == id) {
            struct batch *b = *p;
            *p = b->next;
            b->next = NULL;
            return b;
        }
    return NULL;
}

void batches_put(struct batches *a, struct batch *b)
{
    assert(!b->next && b != a->head);
    batch_free(batches_take(a, b->id));
    b->next = a->head;
    a->head = b;
}

void batches_clear(struct batches *a)
{
    while (a->head)
        batch_free(batches_take(a, a->head->id));
}
