#include "common/clock.h"
#include "model-server/encoder/pixels.h"
#include "model-server/encoder/resample_kernels.h"
#include "model-server/engine/pictures_impl.h"
#include <assert.h>
#include <stdlib.h>

struct pictures *pictures_new(const struct pictures_options *o, struct err *e)
{
    struct pictures *p = calloc(1, sizeof(*p));
    if (!p)
        return err_nomem(e), NULL;
    p->o = *o;
    p->crosses = vision_crosses(o->vision);
    p->shown.model = o->model;
    return p;
}

static uint64_t row_bytes(const struct pictures *p, const struct medium *m)
{
    return (uint64_t)m->plan.n_features * tower_row(p->o.tower) * sizeof(float);
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

static void free_work(struct tower_image *i)
{
    free((void *)(uintptr_t)i->pixels);
    free(i->out);
    *i = (struct tower_image){0};
}

static void free_medium(struct pictures *p, struct medium *m)
{
    if (m == p->current) { /* its request was cancelled */
        tower_stop(p->o.tower);
        free_work(&p->at_work);
        p->current = NULL;
    }
    unlink_medium(p, m);
    if (m->rows) {
        p->stats.kept--;
        p->stats.bytes -= row_bytes(p, m);
    }
    free(m->rows);
    image_free(&m->picture);
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

struct medium *pictures_add(struct pictures *p, const struct vision_plan *plan,
                            struct image *picture, uint64_t digest)
{
    struct medium *m = calloc(1, sizeof(*m));
    if (!m)
        return NULL;
    m->digest = digest;
    m->plan = *plan;
    m->picture = *picture;
    m->refs = 1;
    *picture = (struct image){0};
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

static int make_pixels(const struct pictures *p, const struct medium *m, struct tower_image *out,
                       struct err *e)
{
    const struct vision_format *f = vision_format(p->o.vision);
    const struct backend_ops *ops = p->o.ops;
    const bool alone = !ops->host_run;
    const struct pixels_workers w = {.threads = alone ? 1 : ops->host_threads(p->o.dev),
                                     .run = ops->host_run,
                                     .device = p->o.dev,
                                     .features = resample_features()};
    float *pixels = malloc(pixels_count(f, &m->plan, f->layout) * sizeof(*pixels));
    if (!pixels)
        return err_nomem(e);
    *out = (struct tower_image){.plan = &m->plan, .pixels = pixels, .layout = f->layout};
    return pixels_make(f, &m->plan, &m->picture, f->layout, alone ? NULL : &w, pixels, e);
}

/* Decodes the pixels and allocates memory for features. */
static int open_work(struct pictures *p, struct medium *m, struct tower_image *out, struct err *e)
{
    if (make_pixels(p, m, out, e))
        return -1;
    return (out->out = malloc(row_bytes(p, m))) ? 0 : err_nomem(e);
}

/* The image is encoded: `from` holds its features. */
static void take_rows(struct pictures *p, struct medium *m, struct tower_image *from)
{
    m->rows = from->out;
    from->out = NULL;
    image_free(&m->picture);
    p->stats.kept++;
    p->stats.encoded++;
    p->stats.bytes += row_bytes(p, m);
}

/* The next image that the step needs. */
static struct medium *next_wanted(const struct pictures *p)
{
    struct medium *m = p->oldest;
    while (m && (!m->wanted || m->rows))
        m = m->newer;
    return m;
}

/* Continues with the current image, or starts the next one; adds to *done. */
static int encode_part(struct pictures *p, uint64_t most, uint64_t *done, struct err *e)
{
    uint64_t some = 0;
    int rc = 0;
    if (!p->current) {
        struct medium *m = next_wanted(p);
        rc = open_work(p, m, &p->at_work, e);
        if (rc == 0)
            rc = tower_begin(p->o.tower, &p->at_work, 1, e);
        if (rc == 0)
            p->current = m;
    }
    if (rc == 0)
        rc = tower_go_on(p->o.tower, most, &some, e);
    *done += some;
    if (rc == 0 && tower_busy(p->o.tower))
        return 0;
    if (rc == 0)
        take_rows(p, p->current, &p->at_work);
    p->current = NULL;
    free_work(&p->at_work);
    return rc;
}

/* Encodes list[0 .. n) in one call. */
static int encode(struct pictures *p, struct medium **list, struct tower_image *images, uint32_t n,
                  struct err *e)
{
    for (uint32_t i = 0; i < n; i++)
        if (open_work(p, list[i], &images[i], e))
            return -1;
    if (tower_encode(p->o.tower, images, n, e))
        return -1;
    for (uint32_t i = 0; i < n; i++)
        take_rows(p, list[i], &images[i]);
    return 0;
}

static int encode_all(struct pictures *p, struct err *e)
{
    uint32_t n = 0, k = 0;
    for (const struct medium *m = p->oldest; m; m = m->newer)
        n += m->wanted && !m->rows;
    struct medium **list = malloc(n * sizeof(struct medium *));
    struct tower_image *images = calloc(n, sizeof(*images));
    for (struct medium *m = p->oldest; list && images && m; m = m->newer)
        if (m->wanted && !m->rows)
            list[k++] = m;
    int rc = list && images ? encode(p, list, images, n, e) : err_nomem(e);
    for (uint32_t i = 0; images && i < n; i++)
        free_work(&images[i]);
    free(list), free(images);
    return rc;
}

static int encode_wanted(struct pictures *p, uint64_t most, uint64_t *done, struct err *e)
{
    const int64_t t0 = clock_ns();
    int rc = 0;
    if (!next_wanted(p))
        return 0;
    while (rc == 0 && p->current && !most) {
        uint64_t unused = 0;
        rc = encode_part(p, TOWER_ALL, &unused, e);
    }
    while (rc == 0 && *done < most && (p->current || next_wanted(p)))
        rc = encode_part(p, most - *done, done, e);
    if (rc == 0 && !most && next_wanted(p))
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

uint64_t pictures_shown_bytes(const struct pictures *p, enum kv_dtype dtype)
{
    return p->crosses ? model_cross_block_bytes(p->o.model, dtype) : 0;
}

uint32_t pictures_shown_most(const struct pictures *p)
{
    return shown_blocks_of(tower_most_features(p->o.tower));
}

uint32_t pictures_shown_blocks(const struct pictures *p) { return p->shown.n_blocks; }

int pictures_reserve(struct pictures *p, uint32_t tokens, struct err *e)
{
    return tower_reserve(p->o.tower, tokens, e);
}

uint64_t pictures_memory(const struct pictures *p, uint32_t tokens)
{
    return tower_weight_bytes(p->o.tower) + tower_reserve_bytes(p->o.tower, tokens);
}

uint32_t pictures_token(const struct pictures *p) { return vision_token(p->o.vision); }
bool pictures_two_way(const struct pictures *p) { return vision_two_way(p->o.vision); }
struct pictures_stats pictures_stats(const struct pictures *p) { return p->stats; }
