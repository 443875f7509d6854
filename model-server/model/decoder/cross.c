/* cross.c - cross-attention layers, whose keys and values come from images or from an
 * encoder's rows (MIXER_CROSS).
 *
 * Rows that attend to an image are a separate step in such a layer, whose sequences are the rows of
 * their images. Other rows skip the layer, and a step without such rows does not run it. So text
 * costs nothing, and a row's result depends only on the row and its images. If all rows of a step
 * attend to something, as in models with an encoder of texts, none has to be copied.
 *
 * The same cache has the keys and values that layers of attention make of an encoder's rows
 * (layer_spec.merged). */
#include "model-server/model/decoder_impl.h"
#include "model-server/model/model.h"
#include <stdlib.h>
#include <string.h>

bool decoder_is_cross(const struct decoder *d, uint32_t i)
{
    return d->spec.layers[i].mixer == MIXER_CROSS;
}

/* It is such a layer, or one of attention that also has keys of such rows. */
static bool keeps_shown(const struct decoder *d, uint32_t i)
{
    return decoder_is_cross(d, i) || d->spec.layers[i].merged;
}

uint32_t decoder_cross_at(const struct decoder *d, uint32_t layer)
{
    uint32_t n = 0;
    for (uint32_t i = d->stage.first; i < layer; i++)
        n += keeps_shown(d, i);
    return n;
}

uint32_t decoder_cross_layers(const struct decoder *d)
{
    return decoder_cross_at(d, d->stage.first + d->stage.n);
}

void decoder_cross_free(struct decoder *d)
{
    struct crossing *c = &d->cross;
    if (c->kv)
        d->ops->kv_free(d->dev, c->kv);
    free(c->rows), free(c->zeros), free(c->sees), free(c->spans), free(c->marks);
    *c = (struct crossing){0};
}

/* ---------------------------------------------------------------- the cache */

static struct kv_desc describe(const struct decoder *d, uint32_t n_blocks, enum kv_dtype dtype)
{
    uint32_t first = d->stage.first;
    while (!keeps_shown(d, first))
        first++;
    const uint32_t dim = spec_head_dim(&d->spec, first);
    return (struct kv_desc){.n_layers = decoder_cross_layers(d),
                            .n_blocks = n_blocks,
                            .block_size = MODEL_CROSS_BLOCK,
                            .dtype = dtype,
                            .each = {.n_heads = split_kv_heads(&d->split, &d->spec, first).n,
                                     .k_dim = dim,
                                     .v_dim = dim}};
}

uint64_t decoder_cross_block_bytes(const struct decoder *d, enum kv_dtype dtype)
{
    if (!decoder_cross_layers(d))
        return 0;
    const struct kv_desc k = describe(d, 1, dtype);
    return d->ops->kv_block_bytes(&k);
}

int decoder_cross_resize(struct decoder *d, uint32_t n_blocks, enum kv_dtype dtype, struct err *e)
{
    if (d->cross.kv) /* first: there may be no memory for both */
        d->ops->kv_free(d->dev, d->cross.kv);
    d->cross.kv = NULL;
    if (!n_blocks || !decoder_cross_layers(d))
        return 0;
    const struct kv_desc k = describe(d, n_blocks, dtype);
    return (d->cross.kv = d->ops->kv_new(d->dev, &k, e)) ? 0 : -1;
}

/* Rows that are stored in one part. */
enum { STORE_ROWS = 256 };

static int store_part(struct decoder *d, const float *rows, const uint32_t *blocks, uint32_t first,
                      uint32_t n, struct err *e)
{
    uint32_t slots[STORE_ROWS], zeros[STORE_ROWS] = {0};
    struct err late = ERR_INIT;
    for (uint32_t i = 0; i < n; i++)
        slots[i] = blocks[(first + i) / MODEL_CROSS_BLOCK] * MODEL_CROSS_BLOCK +
                   (first + i) % MODEL_CROSS_BLOCK;
    const struct span span = {.n = n, .kv_len = first + n, .blocks = blocks};
    const struct ragged b = {
        .n_tokens = n, .n_spans = 1, .ids = zeros, .pos = zeros, .slots = slots, .spans = &span};
    int rc = 0;
    if (d->ops->upload(d->dev, d->scratch.x, rows, (size_t)n * d->spec.hidden * sizeof(float), e) ||
        d->ops->step_begin(d->dev, &b, e))
        return -1;
    for (uint32_t i = d->stage.first; rc == 0 && i < d->stage.first + d->stage.n; i++) {
        if (!keeps_shown(d, i))
            continue;
        const struct sublayer *y = &d->layers[i].mixer;
        struct sub_step s = {.layer = i,
                             .tokens = n,
                             .total = n,
                             .cache = d->cross.kv,
                             .kv = decoder_cross_at(d, i),
                             .in = d->scratch.x,
                             .work = {d->scratch.mixer}};
        rc = y->ops->store(d, y->self, &s, e);
    }
    return d->ops->step_end(d->dev, rc ? &late : e) || rc ? -1 : 0;
}

int decoder_cross_store(struct decoder *d, const float *rows, const uint32_t *blocks,
                        uint32_t first, uint32_t n, struct err *e)
{
    if (!decoder_cross_layers(d))
        return 0;
    if (decoder_reserve_pass(d, n < STORE_ROWS ? n : STORE_ROWS, 0, e))
        return -1;
    for (uint32_t i = 0, some; i < n; i += some) {
        some = n - i < STORE_ROWS ? n - i : STORE_ROWS;
        if (store_part(d, rows + (size_t)i * d->spec.hidden, blocks, first + i, some, e))
            return -1;
    }
    return 0;
}

/* ---------------------------------------------------------------- a step */

static int reserve(struct crossing *c, uint32_t n, uint32_t tokens, struct err *e)
{
    if (n <= c->cap && tokens <= c->cap_tokens)
        return 0;
    n = n > c->cap ? n : c->cap;
    tokens = tokens > c->cap_tokens ? tokens : c->cap_tokens;
    free(c->rows), free(c->zeros), free(c->sees), free(c->spans), free(c->marks);
    c->cap = c->cap_tokens = 0;
    c->rows = malloc(n * sizeof(*c->rows));
    c->zeros = calloc(n, sizeof(*c->zeros));
    c->sees = malloc(n * sizeof(*c->sees));
    c->spans = malloc(n * sizeof(*c->spans)); /* at most one for each row */
    c->marks = malloc(tokens * sizeof(*c->marks));
    if (!c->rows || !c->zeros || !c->sees || !c->spans || !c->marks)
        return err_nomem(e);
    c->cap = n;
    c->cap_tokens = tokens;
    return 0;
}

static bool row_sees(const struct ragged *b, uint32_t i)
{
    return b->sees[i].begin != b->sees[i].end;
}

/* Adds the rows of a span that attend to an image, as a sequence of the images' rows. */
static void put_span(struct crossing *c, const struct ragged *b, const struct span *s,
                     uint32_t *n_spans)
{
    const uint32_t first = c->n;
    uint32_t len = 0;
    for (uint32_t i = s->first; i < s->first + s->n; i++) {
        c->marks[i] = row_sees(b, i) ? (const float *)b : NULL; /* not read */
        if (!row_sees(b, i))
            continue;
        c->rows[c->n] = i;
        c->sees[c->n++] = b->sees[i];
        len = b->sees[i].end > len ? b->sees[i].end : len;
    }
    if (c->n > first)
        c->spans[(*n_spans)++] = (struct span){.first = first,
                                               .n = c->n - first,
                                               .kv_len = len,
                                               .blocks = s->shown,
                                               .adapter = s->adapter};
}

int decoder_cross_begin(struct decoder *d, const struct ragged *b, struct err *e)
{
    struct crossing *c = &d->cross;
    uint32_t n = 0, n_spans = 0;
    c->n = 0;
    if (!c->kv || !b->sees)
        return 0;
    for (uint32_t i = 0; i < b->n_tokens; i++)
        n += row_sees(b, i);
    if (!n)
        return 0;
    if (reserve(c, n, b->n_tokens, e))
        return -1;
    for (uint32_t i = 0; i < b->n_spans; i++)
        put_span(c, b, &b->spans[i], &n_spans);
    c->whole = c->marked = *b;
    c->marked.given = c->marks;
    c->marked.out_rows = c->rows;
    c->marked.n_out = n;
    c->alone = (struct ragged){.n_tokens = n,
                               .n_spans = n_spans,
                               .ids = c->zeros,
                               .pos = c->zeros,
                               .slots = c->zeros,
                               .spans = c->spans,
                               .mutual = c->sees};
    return 0;
}

int decoder_cross_layer(struct decoder *d, uint32_t i, const struct ragged *b, struct err *e)
{
    const struct crossing *c = &d->cross;
    const bool all = c->n == b->n_tokens;
    struct scratch *s = &d->scratch;
    float *const x = s->x;
    if (!all) {
        if (decoder_next_step(d, &c->marked, e))
            return -1;
        d->ops->gather_out(d->dev, s->crossed, x, d->spec.hidden);
        s->x = s->crossed;
    }
    int rc = decoder_next_step(d, &c->alone, e);
    if (rc == 0) {
        if (norm_place_before(spec_norms(&d->spec, i)))
            d->ops->norm(d->dev, s->n, s->x, c->n, d->spec.hidden, &d->layers[i].mixer_norm);
        rc = decoder_layer(d, i, c->n, e);
    }
    s->x = x;
    if (rc)
        return -1;
    if (!all) {
        if (decoder_next_step(d, &c->marked, e))
            return -1;
        d->ops->give_rows(d->dev, x, s->crossed, d->spec.hidden, false);
    }
    return decoder_next_step(d, b, e);
}
