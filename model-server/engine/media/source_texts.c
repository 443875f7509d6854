/* source_texts.c - rows of texts: ids through the encoder beside a decoder. A text may have an
 * image (Florence-2): first the tower computes its features, then the encoder reads these instead
 * of the embeddings of its placeholders. */
#include "common/digest.h"
#include "model-server/engine/media/pictures_impl.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

static int shape(const struct pictures *p, const struct media_spec *s, struct medium_shape *out,
                 struct err *e)
{
    if (!s->n_ids || s->n_ids > p->o.most_ids)
        return err_set(e, ERR_VALIDATION, "a text of %u tokens for an encoder of 1 to %u", s->n_ids,
                       p->o.most_ids);
    if (s->n_bytes && !p->o.tower)
        return err_set(e, ERR_VALIDATION, "this model reads text only");
    *out = (struct medium_shape){.rows = s->n_ids, .tokens = 1, .token = NO_PLACEHOLDER};
    return 0;
}

static uint32_t count(const uint32_t *ids, uint32_t n, uint32_t id)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < n; i++)
        found += ids[i] == id;
    return found;
}

/* Decodes the image, whose features are as many as its placeholders. */
static int read_image(struct pictures *p, const struct media_spec *s, struct medium *m,
                      struct err *e)
{
    struct medium_shape seen;
    if (source_images.shape(p, s, &seen, e) || source_images.read(p, s, m, e))
        return -1;
    const uint32_t found = count(s->ids, s->n_ids, vision_token(p->o.vision));
    return found == seen.rows ? 0
                              : err_set(e, ERR_VALIDATION,
                                        "a text has %u placeholders for an image of %u features",
                                        found, seen.rows);
}

static int read_text(struct pictures *p, const struct media_spec *s, struct medium *m,
                     struct err *e)
{
    const uint32_t vocab = model_info(p->o.model)->vocab;
    for (uint32_t i = 0; i < s->n_ids; i++)
        if (s->ids[i] >= vocab)
            return err_set(e, ERR_VALIDATION, "token id %u is not below the vocabulary size %u",
                           s->ids[i], vocab);
    if (s->n_bytes && read_image(p, s, m, e))
        return -1;
    if (!(m->ids = malloc((s->n_ids + (size_t)1) * sizeof(*m->ids))))
        return err_nomem(e);
    memcpy(m->ids, s->ids, s->n_ids * sizeof(*m->ids));
    if (!s->digest)
        m->digest = digest_bytes(s->ids, s->n_ids * sizeof(*s->ids)) ^ m->digest;
    return 0;
}

static void drop(struct medium *m)
{
    image_free(&m->picture);
    free(m->ids), free(m->seen);
    m->ids = NULL;
    m->seen = NULL;
}

/* ---------------------------------------------------------------- encoding */

static int begin_texts(struct pictures *p, struct err *e)
{
    for (uint32_t i = 0; i < p->n_current; i++) {
        const struct medium *m = p->current[i];
        p->work.texts[i] = (struct text_job){.ids = m->ids,
                                             .n = m->shape.rows,
                                             .given = m->seen,
                                             .stands_for = m->seen ? vision_token(p->o.vision) : 0,
                                             .out = m->unfinished};
    }
    return text_encoder_begin(p->o.texts, p->work.texts, p->n_current, e);
}

/* Starts with the images of the media; *n: their number. */
static int begin_images(struct pictures *p, uint32_t *n, struct err *e)
{
    *n = 0;
    if (!p->o.tower)
        return 0;
    if (!(p->seen = calloc(p->n_current, sizeof(*p->seen))))
        return err_nomem(e);
    for (uint32_t i = 0; i < p->n_current; i++) {
        struct medium *m = p->current[i];
        if (!m->picture.rgb)
            continue;
        free(m->seen); /* of a pass that failed */
        m->seen = malloc((size_t)m->plan.n_features * tower_row(p->o.tower) * sizeof(float));
        if (!m->seen)
            return err_nomem(e);
        p->n_seen = ++*n;
        if (source_pixels(p, m, m->seen, &p->seen[*n - 1], e))
            return -1;
    }
    return *n ? tower_begin(p->o.tower, p->seen, *n, e) : 0;
}

static int begin(struct pictures *p, struct medium *const *m, uint32_t n, struct err *e)
{
    uint32_t images;
    assert(m == p->current && n == p->n_current);
    if (!(p->work.texts = calloc(n, sizeof(*p->work.texts))))
        return err_nomem(e);
    if (begin_images(p, &images, e))
        return -1;
    return images ? 0 : begin_texts(p, e);
}

static int go_on(struct pictures *p, uint64_t most, uint64_t *done, struct err *e)
{
    uint64_t some = 0;
    *done = 0;
    if (p->n_seen && tower_go_on(p->o.tower, most, done, e))
        return -1;
    if (p->n_seen && tower_busy(p->o.tower))
        return 0;
    if (p->n_seen) {
        source_drop_pixels(p->seen, p->n_seen);
        p->n_seen = 0;
        if (begin_texts(p, e))
            return -1;
    }
    if (*done >= most)
        return 0;
    const int rc =
        text_encoder_go_on(p->o.texts, most == SOURCE_ALL ? most : most - *done, &some, e);
    *done += some;
    return rc;
}

static bool busy(const struct pictures *p) { return p->n_seen || text_encoder_busy(p->o.texts); }

static void stop(struct pictures *p)
{
    if (p->o.tower)
        tower_stop(p->o.tower);
    if (p->seen)
        source_drop_pixels(p->seen, p->n_seen);
    free(p->seen);
    p->seen = NULL;
    p->n_seen = 0;
    text_encoder_stop(p->o.texts);
    free(p->work.texts);
    p->work.texts = NULL;
}

/* ---------------------------------------------------------------- sizes */

static uint32_t row(const struct pictures *p) { return text_encoder_width(p->o.texts); }
static uint32_t most_rows(const struct pictures *p) { return p->o.most_ids; }

static const float *token(const struct pictures *p)
{
    (void)p;
    return NULL;
}

/* A text is encoded whole: the tokens of the largest step are the most that it may have. */
static int reserve(struct pictures *p, uint32_t tokens, struct err *e)
{
    p->o.most_ids = tokens;
    if (p->o.tower && tower_reserve(p->o.tower, tokens, e))
        return -1;
    return text_encoder_reserve(p->o.texts, tokens, e);
}

static uint64_t memory(const struct pictures *p, uint32_t tokens)
{
    const uint64_t seen = p->o.tower ? source_images.memory(p, tokens) : 0;
    return seen + text_encoder_weight_bytes(p->o.texts) +
           text_encoder_reserve_bytes(p->o.texts, tokens);
}

const struct source_ops source_texts = {.shape = shape,
                                        .read = read_text,
                                        .drop = drop,
                                        .begin = begin,
                                        .go_on = go_on,
                                        .busy = busy,
                                        .stop = stop,
                                        .row = row,
                                        .token = token,
                                        .most_rows = most_rows,
                                        .reserve = reserve,
                                        .memory = memory};
