/* media.c - the images of one sequence: which token has which feature. */
#include "model-server/engine/media/pictures_impl.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NO_FEATURE UINT32_MAX

/* ---------------------------------------------------------------- what a request says */

/* Checks the tokens of a medium: as many placeholders as it has features, including the first and
 * the last token. */
static int check_tokens(const struct media_spec *s, const struct medium_shape *shape,
                        const uint32_t *ids, uint32_t after, uint32_t n_ids, struct err *e)
{
    const uint32_t token = shape->token;
    uint32_t n = 0;
    if (!s->tokens || s->position < after || s->position >= n_ids ||
        s->tokens > n_ids - s->position)
        return err_set(e, ERR_VALIDATION,
                       "a picture cannot stand at tokens %u to %u of a prompt of %u", s->position,
                       s->position + s->tokens, n_ids);
    if (token == NO_PLACEHOLDER && s->tokens == shape->tokens)
        return 0;
    for (uint32_t i = 0; i < s->tokens; i++)
        n += ids[s->position + i] == token;
    if (n == shape->tokens && ids[s->position] == token &&
        ids[s->position + s->tokens - 1] == token)
        return 0;
    return err_set(e, ERR_VALIDATION, "a picture of %u tokens has %u tokens in the prompt",
                   shape->tokens, n);
}

static bool same_size(const struct medium_shape *a, const struct medium_shape *b)
{
    return a->rows == b->rows && a->width == b->width && a->height == b->height;
}

/* The medium with an input or features; reads it if neither exists yet. */
static struct medium *obtain(struct pictures *p, const struct media_spec *s,
                             const struct medium_shape *shape, struct err *e)
{
    struct medium fresh = {.digest = s->digest, .shape = *shape}, *m = pictures_find(p, s->digest);
    if (!m) {
        if (p->source->read(p, s, &fresh, e)) {
            p->source->drop(&fresh);
            return NULL;
        }
        m = pictures_find(p, fresh.digest);
    }
    if (m && !same_size(&m->shape, shape)) {
        err_set(e, ERR_VALIDATION, "two media of one digest have %u and %u rows", m->shape.rows,
                shape->rows);
        m = NULL;
    } else if (m) {
        pictures_ref(p, m);
    } else if (!(m = pictures_add(p, &fresh))) {
        err_nomem(e);
    }
    p->source->drop(&fresh);
    return m;
}

static int open_one(struct media *m, uint32_t i, const struct media_spec *s, const uint32_t *ids,
                    uint32_t n_ids, uint32_t cached, struct err *e)
{
    struct medium_shape *const shape = &m->shapes[i];
    const uint32_t after = i ? m->places[i - 1].first + m->places[i - 1].n : 0;
    if (m->pictures->source->shape(m->pictures, s, shape, e) ||
        check_tokens(s, shape, ids, after, n_ids, e))
        return -1;
    m->places[i] = (struct vision_place){
        s->position, s->tokens, shape->grid_h, shape->grid_w, shape->interval, shape->tiles, 0};
    if (!m->pictures->crosses && s->position + s->tokens > cached &&
        !(m->of[i] = obtain(m->pictures, s, shape, e)))
        return -1;
    return 0;
}

/* Keys and values of all pictures are in the pool, or the pictures have to be at hand. */
static int open_crosses(struct media *m, const struct media_spec *specs, struct err *e)
{
    bool named = true;
    uint64_t *digests = calloc(m->n, sizeof(*digests));
    int rc = digests ? media_cross_open(m, e) : err_nomem(e);
    for (uint32_t i = 0; rc == 0 && i < m->n; i++)
        named &= (digests[i] = specs[i].digest) != 0;
    if (rc == 0)
        media_cross_name(m, digests);
    if (rc == 0 && named && media_cross_here(m)) {
        free(digests);
        return media_cross_take(m, e) < 0 ? -1 : 0; /* they are here: there is room */
    }
    for (uint32_t i = 0; rc == 0 && i < m->n; i++) {
        struct medium_shape shape;
        rc = m->pictures->source->shape(m->pictures, &specs[i], &shape, e);
        if (rc == 0 && !(m->of[i] = obtain(m->pictures, &specs[i], &shape, e)))
            rc = -1;
        digests[i] = rc == 0 ? m->of[i]->digest : 0;
    }
    if (rc == 0)
        media_cross_name(m, digests);
    free(digests);
    return rc;
}

/* ---------------------------------------------------------------- its tokens */

/* Finds uninterrupted runs of placeholders of one image. */
static void mark_runs(struct media *m, const struct vision_place *at)
{
    for (uint32_t i = at->first, end; i < at->first + at->n; i = end) {
        end = i + 1;
        if (m->feature[i - m->begin] == NO_FEATURE)
            continue;
        while (end < at->first + at->n && m->feature[end - m->begin] != NO_FEATURE)
            end++;
        for (uint32_t k = i; k < end; k++)
            m->marks[k - m->begin] = (struct mutual){i, end};
    }
}

static int number_features(struct media *m, const uint32_t *ids, struct err *e)
{
    const struct vision_place *last = &m->places[m->n - 1];
    m->begin = m->places[0].first;
    m->end = last->first + last->n;
    m->feature = malloc((m->end - m->begin) * sizeof(*m->feature));
    m->marks = m->two_way && !m->prefix ? calloc(m->end - m->begin, sizeof(*m->marks)) : NULL;
    if (!m->feature || (m->two_way && !m->prefix && !m->marks))
        return err_nomem(e);
    memset(m->feature, 0xff, (m->end - m->begin) * sizeof(*m->feature));
    for (uint32_t i = 0; i < m->n; i++) {
        const struct vision_place *at = &m->places[i];
        for (uint32_t k = at->first, nth = 0; k < at->first + at->n; k++)
            if (ids[k] == m->shapes[i].token)
                m->feature[k - m->begin] = nth++;
        if (m->marks)
            mark_runs(m, at);
    }
    return 0;
}

/* Each run of a video's placeholders is a grid, if text stands between them. */
static int add_runs(struct media *m, const struct vision_place *at,
                    const struct medium_shape *shape, struct err *e)
{
    const uint32_t cells = shape->grid_h * shape->grid_w, end = at->first + at->n;
    for (uint32_t i = at->first; i < end; i++) {
        uint32_t n = 0;
        while (i + n < end && m->feature[i + n - m->begin] != NO_FEATURE)
            n++;
        if (n && n != cells)
            return err_set(e, ERR_VALIDATION, "a frame of %u tokens has %u tokens in the prompt",
                           cells, n);
        if (n)
            m->grids[m->n_grids++] = (struct vision_place){i, n, shape->grid_h, shape->grid_w, 0};
        i += n;
    }
    return 0;
}

/* Counts the tokens that follow each image and belong to it. */
static int find_behind(struct media *m, const uint32_t *ids, uint32_t n_ids, struct err *e)
{
    for (uint32_t i = 0; i < m->n; i++) {
        struct vision_place *at = &m->places[i];
        const uint32_t begin = at->first + at->n;
        const uint32_t end = i + 1 < m->n ? m->places[i + 1].first - 1 : n_ids;
        while (begin + at->behind < end &&
               vision_belongs(m->pictures->o.vision, ids[begin + at->behind]))
            at->behind++;
        if (begin + at->behind == n_ids)
            return err_set(e, ERR_VALIDATION, "text must follow the last picture of a prompt");
    }
    return 0;
}

static int find_grids(struct media *m, struct err *e)
{
    size_t most = 0;
    int rc = 0;
    for (uint32_t i = 0; i < m->n; i++)
        most += m->shapes[i].apart ? m->shapes[i].rows : 1;
    if (!(m->grids = malloc((most ? most : 1) * sizeof(*m->grids))))
        return err_nomem(e);
    for (uint32_t i = 0; i < m->n && rc == 0; i++)
        if (m->shapes[i].apart)
            rc = add_runs(m, &m->places[i], &m->shapes[i], e);
        else
            m->grids[m->n_grids++] = m->places[i];
    return rc;
}

struct media *media_new(struct pictures *p, const struct media_spec *specs, uint32_t n,
                        const uint32_t *ids, uint32_t n_ids, uint32_t cached, struct err *e)
{
    struct media *m = calloc(1, sizeof(*m));
    assert(n > 0);
    if (!m)
        return err_nomem(e), NULL;
    m->pictures = p;
    m->axes = p->axes;
    m->two_way = p->two_way;
    m->prefix = p->prefix ? n_ids : 0;
    m->n = n;
    m->places = calloc(n, sizeof(*m->places));
    m->shapes = calloc(n, sizeof(*m->shapes));
    m->of = calloc(n, sizeof(struct medium *));
    int rc = m->places && m->shapes && m->of ? 0 : err_nomem(e);
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = open_one(m, i, &specs[i], ids, n_ids, cached, e);
    if (rc == 0 && p->crosses)
        rc = open_crosses(m, specs, e);
    if (rc == 0 && p->canvas)
        rc = find_behind(m, ids, n_ids, e);
    if (rc == 0)
        rc = number_features(m, ids, e);
    if (rc == 0)
        rc = find_grids(m, e);
    if (rc == 0)
        return m;
    media_free(m);
    return NULL;
}

void media_free(struct media *m)
{
    if (!m)
        return;
    for (uint32_t i = 0; m->of && i < m->n; i++)
        if (m->of[i])
            pictures_unref(m->pictures, m->of[i]);
    media_cross_close(m);
    free(m->places), free(m->shapes), free(m->grids);
    free(m->of), free(m->feature), free(m->marks);
    free(m);
}

void media_release(struct media *m, uint32_t cached)
{
    if (m->pictures->crosses) {
        media_cross_release(m);
        return;
    }
    for (uint32_t i = 0; i < m->n; i++)
        if (m->of[i] && m->places[i].first + m->places[i].n <= cached) {
            pictures_unref(m->pictures, m->of[i]);
            m->of[i] = NULL;
        }
}

uint32_t media_end(const struct media *m, uint32_t end)
{
    if (m->prefix)
        return end > 0 && end < m->prefix ? m->prefix : end;
    if (!m->two_way || end <= m->begin || end >= m->end)
        return end;
    const struct mutual *run = &m->marks[end - 1 - m->begin];
    return run->end > end ? run->end : end;
}

void media_want(struct media *m, uint32_t from, uint32_t to)
{
    if (m->pictures->crosses) {
        media_cross_want(m, to);
        return;
    }
    for (uint32_t i = 0; i < m->n; i++)
        if (m->of[i] && m->places[i].first < to && m->places[i].first + m->places[i].n > from)
            m->of[i]->wanted = true;
}

uint32_t media_ready(const struct media *m, uint32_t from, uint32_t to)
{
    if (m->pictures->crosses)
        return media_cross_ready(m, from, to);
    for (uint32_t i = 0; i < m->n; i++) {
        const struct vision_place *at = &m->places[i];
        if (m->of[i] && !m->of[i]->rows && at->first < to && at->first + at->n > from)
            return at->first > from && from >= m->prefix ? at->first : from;
    }
    return to;
}

/* The image to which token i belongs. */
static const struct medium *medium_at(const struct media *m, uint32_t i)
{
    uint32_t low = 0, high = m->n; /* the last one that starts at i or before */
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        *(m->places[middle].first <= i ? &low : &high) = middle;
    }
    return m->of[low];
}

struct media_token media_token(const struct media *m, uint32_t i)
{
    struct media_token t = {0};
    if (m->axes)
        vision_position(m->pictures->o.vision, m->grids, m->n_grids, i, t.axes);
    if (i < m->prefix)
        t.mutual = (struct mutual){0, m->prefix};
    if (m->pictures->crosses) {
        t.sees = media_cross_sees(m, i);
        t.row = media_has(m, i) ? m->pictures->source->token(m->pictures) : NULL;
        return t;
    }
    if (!media_has(m, i))
        return t;
    const struct medium *of = medium_at(m, i);
    assert(of && of->rows); /* guaranteed by media_want() and pictures_encode() */
    t.row = of->rows + (size_t)m->feature[i - m->begin] * m->pictures->source->row(m->pictures);
    if (m->marks)
        t.mutual = m->marks[i - m->begin];
    return t;
}

bool media_has(const struct media *m, uint32_t i)
{
    return i >= m->begin && i < m->end && m->feature[i - m->begin] != NO_FEATURE;
}

bool media_has_axes(const struct media *m) { return m->axes; }
const uint32_t *media_shown(const struct media *m) { return m->table; }
bool media_is_two_way(const struct media *m) { return m->two_way; }
