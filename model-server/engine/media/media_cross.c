/* media_cross.c - sequences with images for cross-attention layers (shown.h): their runs, and the
 * rows that a token attends to. */
#include "common/hash.h"
#include "model-server/engine/media/pictures_impl.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Images with adjacent tokens are one run: the tokens after it attend to all of it, up to the next
 * run. The token of an image attends to that image and those before it in the run. */
int media_cross_open(struct media *m, struct err *e)
{
    const struct pictures *p = m->pictures;
    uint32_t blocks = 0, row = 0;
    m->runs = calloc(m->n, sizeof(*m->runs));
    m->keys = calloc(m->n, sizeof(*m->keys));
    m->rows = calloc(m->n, sizeof(*m->rows));
    m->taken = calloc(m->n, sizeof(struct shown_run *));
    m->sees = calloc(m->n, sizeof(*m->sees));
    if (!m->runs || !m->keys || !m->rows || !m->taken || !m->sees)
        return err_nomem(e);
    assert(m->n > 0);
    for (uint32_t i = 0; i < m->n; i++) {
        const bool next = i && m->places[i].first == m->places[i - 1].first + m->places[i - 1].n;
        if (!next) {
            row = blocks * MODEL_CROSS_BLOCK;
            m->runs[m->n_runs++] = (struct media_run){.first = i, .row = row};
        }
        struct media_run *r = &m->runs[m->n_runs - 1];
        const uint32_t at = m->n_runs - 1;
        r->n++;
        m->rows[at] += m->shapes[i].rows;
        m->sees[i] = (struct mutual){r->row, r->row + m->rows[at]};
        blocks = r->row / MODEL_CROSS_BLOCK + shown_blocks_of(m->rows[at]);
    }
    if (blocks > p->shown.n_blocks)
        return err_set(e, ERR_VALIDATION,
                       "the images of a request take %u rows of keys and values, and there is "
                       "memory for %u",
                       blocks * MODEL_CROSS_BLOCK, p->shown.n_blocks * MODEL_CROSS_BLOCK);
    m->table = calloc(blocks, sizeof(*m->table));
    return m->table ? 0 : err_nomem(e);
}

/* The key of a run is the digest of its image, or a hash of several digests. */
void media_cross_name(struct media *m, const uint64_t *digests)
{
    for (uint32_t i = 0; i < m->n_runs; i++) {
        const struct media_run *r = &m->runs[i];
        m->keys[i] = digests[r->first];
        for (uint32_t k = 1; k < r->n; k++)
            m->keys[i] = hash_mix(hash_mix(m->keys[i]) ^ digests[r->first + k]);
    }
}

int media_cross_take(struct media *m, struct err *e)
{
    if (m->has_runs)
        return 1;
    const int rc = shown_take(&m->pictures->shown, m->keys, m->rows, m->n_runs, m->taken, e);
    if (rc <= 0)
        return rc;
    assert(m->table);
    for (uint32_t i = 0; i < m->n_runs; i++)
        m->pictures->stats.hits += shown_ready(m->taken[i]) ? m->runs[i].n : 0;
    for (uint32_t i = 0; i < m->n_runs; i++)
        memcpy(m->table + m->runs[i].row / MODEL_CROSS_BLOCK, m->taken[i]->blocks,
               m->taken[i]->n_blocks * sizeof(*m->table));
    m->has_runs = true;
    return 1;
}

bool media_cross_here(const struct media *m)
{
    bool all = true;
    for (uint32_t i = 0; i < m->n_runs; i++) {
        const struct shown_run *r = shown_find(&m->pictures->shown, m->keys[i]);
        all &= r && shown_ready(r);
    }
    return all;
}

void media_cross_close(struct media *m)
{
    for (uint32_t i = 0; m->has_runs && i < m->n_runs; i++)
        shown_drop(&m->pictures->shown, m->taken[i]);
    free(m->runs), free(m->keys), free(m->rows), free(m->taken), free(m->sees), free(m->table);
}

/* Number of runs that begin before token `to`. */
static uint32_t runs_before(const struct media *m, uint32_t to)
{
    uint32_t n = 0;
    while (n < m->n_runs && m->places[m->runs[n].first].first < to)
        n++;
    return n;
}

void media_cross_want(struct media *m, uint32_t to)
{
    struct pictures *p = m->pictures;
    const uint32_t n = runs_before(m, to);
    struct err none = ERR_INIT;
    if (!n || p->no_room)
        return;
    if (media_cross_take(m, &none) <= 0) {
        p->no_room = true; /* later sequences wait as well */
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (shown_ready(m->taken[i]))
            continue;
        m->wanted = true;
        for (uint32_t k = m->runs[i].first; k < m->runs[i].first + m->runs[i].n; k++)
            if (m->of[k])
                m->of[k]->wanted = true;
    }
    if (m->wanted) {
        m->next_wanted = p->wanted;
        p->wanted = m;
    }
}

void media_cross_release(struct media *m)
{
    for (uint32_t i = 0; m->has_runs && i < m->n_runs; i++) {
        if (!shown_ready(m->taken[i]))
            continue;
        for (uint32_t k = m->runs[i].first; k < m->runs[i].first + m->runs[i].n; k++)
            if (m->of[k]) {
                pictures_unref(m->pictures, m->of[k]);
                m->of[k] = NULL;
            }
    }
}

uint32_t media_cross_ready(const struct media *m, uint32_t from, uint32_t to)
{
    const uint32_t n = runs_before(m, to);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t first = m->places[m->runs[i].first].first;
        if (!m->has_runs || !shown_ready(m->taken[i]))
            return first > from ? first : from;
    }
    return to;
}

struct mutual media_cross_sees(const struct media *m, uint32_t token)
{
    uint32_t n = 0;
    while (n < m->n && m->places[n].first <= token)
        n++;
    return n ? m->sees[n - 1] : (struct mutual){0, 0};
}

/* ---------------------------------------------------------------- from features to the cache */

/* Rows of a run that are stored in one part while streams run. */
enum { STORE_ROWS = 64 };

/* The features from row `at` of the run on; *left: how many rows of its image follow. NULL: not
 * encoded yet. */
static const float *rows_at(const struct media *m, const struct media_run *r, uint32_t at,
                            uint32_t *left)
{
    uint32_t k = r->first;
    while (at >= m->shapes[k].rows)
        at -= m->shapes[k++].rows;
    assert(k < r->first + r->n);
    *left = m->shapes[k].rows - at;
    return m->of[k] && m->of[k]->rows
               ? m->of[k]->rows + (size_t)at * m->pictures->source->row(m->pictures)
               : NULL;
}

static int store_run(struct media *m, uint32_t i, uint64_t most, uint64_t *done, struct err *e)
{
    const uint64_t cost = model_cross_row_cost(m->pictures->o.model);
    struct shown_run *s = m->taken[i];
    while (!shown_ready(s) && (!most || *done < most)) {
        uint32_t n;
        const float *rows = rows_at(m, &m->runs[i], s->stored, &n);
        if (!rows)
            return 0;
        n = most && n > STORE_ROWS ? STORE_ROWS : n;
        if (shown_store(&m->pictures->shown, s, rows, n, e))
            return -1;
        *done += most ? n * cost : 0;
    }
    return 0;
}

int media_cross_store(struct pictures *p, uint64_t most, uint64_t *done, struct err *e)
{
    int rc = 0;
    for (struct media *m = p->wanted; m; m = m->next_wanted)
        m->wanted = false;
    for (struct media *m = p->wanted; m && rc == 0; m = m->next_wanted)
        for (uint32_t i = 0; i < m->n_runs && rc == 0; i++)
            rc = store_run(m, i, most, done, e);
    p->wanted = NULL;
    p->no_room = false;
    return rc;
}
