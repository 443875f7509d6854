#include "common/clock.h"
#include "model-server/engine/media/pictures_impl.h"
#include <assert.h>
#include <stdlib.h>

struct pictures *pictures_new(const struct pictures_options *o, struct err *e)
{
    struct pictures *p = calloc(1, sizeof(*p));
    if (!p)
        return err_nomem(e), NULL;
    p->o = *o;
    p->shown.model = o->model;
    p->source = o->texts ? &source_texts : &source_images;
    p->token = o->texts ? NO_PLACEHOLDER : vision_token(o->vision);
    p->crosses = o->texts || vision_crosses(o->vision);
    p->axes = !o->texts && vision_three_positions(o->vision);
    p->canvas = !o->texts && vision_canvas(o->vision);
    p->two_way = !o->texts && vision_two_way(o->vision);
    p->prefix = !o->texts && vision_prefix(o->vision);
    return p;
}

static uint64_t row_bytes(const struct pictures *p, const struct medium *m)
{
    return (uint64_t)m->shape.rows * p->source->row(p) * sizeof(float);
}

/* ----------------------------------------------------------------- least recently used */

static void unlink_medium(struct pictures *p, struct medium *m)
{
    *(m->newer ? &m->newer->older : &p->newest) = m->older;
    *(m->older ? &m->older->newer : &p->oldest) = m->newer;
    m->newer = m->older = NULL;
}

static void link_newest(struct pictures *p, struct medium *m)
{
    m->older = p->newest;
    *(p->newest ? &p->newest->newer : &p->oldest) = m;
    p->newest = m;
}

/* The work at hand ends, finished or not. */
static void end_work(struct pictures *p)
{
    p->source->stop(p);
    for (uint32_t i = 0; i < p->n_current; i++) {
        free(p->current[i]->unfinished);
        p->current[i]->unfinished = NULL;
    }
    free(p->current);
    p->current = NULL;
    p->n_current = 0;
}

static void free_medium(struct pictures *p, struct medium *m)
{
    if (m->unfinished) /* its request was cancelled */
        end_work(p);
    unlink_medium(p, m);
    if (m->rows) {
        p->stats.kept--;
        p->stats.bytes -= row_bytes(p, m);
    }
    free(m->rows);
    p->source->drop(m);
    free(m);
}

void pictures_free(struct pictures *p)
{
    if (!p)
        return;
    while (p->oldest) {
        assert(!p->oldest->refs);
        free_medium(p, p->oldest);
    }
    if (p->shown.n_blocks)
        shown_resize(&p->shown, 0, KV_F32, &(struct err)ERR_INIT);
    free(p->shown.free);
    free(p);
}

/* Evicts the least recently used images until the limit is met. */
static void evict(struct pictures *p)
{
    struct medium *m = p->oldest;
    while (m && p->stats.bytes > p->o.most_bytes) {
        struct medium *newer = m->newer;
        if (!m->refs)
            free_medium(p, m);
        m = newer;
    }
}

struct medium *pictures_find(struct pictures *p, uint64_t digest)
{
    struct medium *m = digest ? p->newest : NULL;
    while (m && m->digest != digest)
        m = m->older;
    return m;
}

struct medium *pictures_add(struct pictures *p, struct medium *from)
{
    struct medium *m = malloc(sizeof(*m));
    if (!m)
        return NULL;
    *m = *from;
    m->refs = 1;
    from->picture = (struct image){0};
    from->ids = NULL;
    link_newest(p, m);
    return m;
}

void pictures_ref(struct pictures *p, struct medium *m)
{
    m->refs++;
    p->stats.hits += m->rows != NULL;
    unlink_medium(p, m);
    link_newest(p, m);
}

/* An image that was never encoded is freed. */
void pictures_unref(struct pictures *p, struct medium *m)
{
    assert(m->refs);
    if (--m->refs)
        return;
    if (m->rows && !p->crosses) /* what is kept of those are keys and values */
        evict(p);
    else
        free_medium(p, m);
}

/* ---------------------------------------------------------------- encoding */

/* A medium is encoded. */
static void take_rows(struct pictures *p, struct medium *m)
{
    m->rows = m->unfinished;
    m->unfinished = NULL;
    p->source->drop(m);
    p->stats.kept++;
    p->stats.encoded++;
    p->stats.bytes += row_bytes(p, m);
}

/* The next medium that the step needs, from `m` on. */
static struct medium *wanted_from(struct medium *m)
{
    while (m && (!m->wanted || m->rows || m->unfinished))
        m = m->newer;
    return m;
}

static struct medium *next_wanted(const struct pictures *p) { return wanted_from(p->oldest); }

/* Starts with the next `n` that the step needs. */
static int begin_work(struct pictures *p, uint32_t n, struct err *e)
{
    struct medium *m = next_wanted(p);
    if (!(p->current = malloc(n * sizeof(struct medium *))))
        return err_nomem(e);
    for (; p->n_current < n; m = wanted_from(m)) {
        if (!(m->unfinished = malloc(row_bytes(p, m))))
            return err_nomem(e);
        p->current[p->n_current++] = m;
    }
    return p->source->begin(p, p->current, n, e);
}

/* Continues with the current work, or starts with `n` media; adds to *done. */
static int encode_part(struct pictures *p, uint32_t n, uint64_t most, uint64_t *done, struct err *e)
{
    uint64_t some = 0;
    int rc = p->n_current ? 0 : begin_work(p, n, e);
    if (rc == 0)
        rc = p->source->go_on(p, most, &some, e);
    *done += some;
    if (rc == 0 && p->source->busy(p))
        return 0;
    for (uint32_t i = 0; rc == 0 && i < p->n_current; i++)
        take_rows(p, p->current[i]);
    end_work(p);
    return rc;
}

static int encode_all(struct pictures *p, struct err *e)
{
    uint64_t unused = 0;
    uint32_t n = 0;
    for (struct medium *m = next_wanted(p); m; m = wanted_from(m->newer))
        n++;
    return n ? encode_part(p, n, SOURCE_ALL, &unused, e) : 0;
}

static bool current_wanted(const struct pictures *p)
{
    bool any = false;
    for (uint32_t i = 0; i < p->n_current; i++)
        any |= p->current[i]->wanted;
    return any;
}

static int encode_wanted(struct pictures *p, uint64_t most, uint64_t *done, struct err *e)
{
    const int64_t t0 = clock_ns();
    int rc = 0;
    if (!next_wanted(p) && !current_wanted(p))
        return 0;
    while (rc == 0 && p->n_current && !most) {
        uint64_t unused = 0;
        rc = encode_part(p, 0, SOURCE_ALL, &unused, e);
    }
    while (rc == 0 && *done < most && (p->n_current || next_wanted(p)))
        rc = encode_part(p, 1, most - *done, done, e);
    if (rc == 0 && !most)
        rc = encode_all(p, e);
    for (struct medium *m = p->oldest; m; m = m->newer)
        m->wanted = false;
    evict(p);
    p->stats.encode_ns += clock_ns() - t0;
    return rc;
}

int pictures_encode(struct pictures *p, uint64_t most, uint64_t *done, struct err *e)
{
    *done = 0;
    if (encode_wanted(p, most, done, e)) {
        p->wanted = NULL;
        p->no_room = false;
        return -1;
    }
    return media_cross_store(p, most, done, e);
}

int pictures_reserve_shown(struct pictures *p, uint32_t n_blocks, enum kv_dtype dtype,
                           struct err *e)
{
    return p->crosses ? shown_resize(&p->shown, n_blocks, dtype, e) : 0;
}

bool pictures_cross(const struct pictures *p) { return p->crosses; }
bool pictures_alone(const struct pictures *p) { return !p->o.texts && vision_alone(p->o.vision); }

uint64_t pictures_shown_bytes(const struct pictures *p, enum kv_dtype dtype)
{
    return p->crosses ? model_cross_block_bytes(p->o.model, dtype) : 0;
}

uint32_t pictures_shown_most(const struct pictures *p)
{
    return shown_blocks_of(p->source->most_rows(p));
}

uint32_t pictures_shown_blocks(const struct pictures *p) { return p->shown.n_blocks; }

int pictures_reserve(struct pictures *p, uint32_t tokens, struct err *e)
{
    return p->source->reserve(p, tokens, e);
}

uint64_t pictures_memory(const struct pictures *p, uint32_t tokens)
{
    return p->source->memory(p, tokens);
}

uint32_t pictures_token(const struct pictures *p) { return p->token; }
struct pictures_stats pictures_stats(const struct pictures *p) { return p->stats; }
