/* encode.c - hidden states of a step without later steps: at once, or in parts. */
#include "common/thread/watchdog.h"
#include "model-server/model/decoder_impl.h"
#include "model-server/model/pass.h"
#include "model-server/model/residual.h"
#include <assert.h>

/* Biases by distance are added in fp32 everywhere. A host's caches are never rounded. */
enum kv_dtype decoder_encode_kv(const struct decoder *d)
{
    const struct decoder_spec *s = &d->spec;
    enum kv_dtype rounded = KV_F32;
    const bool usual = d->ops->draw && d->ops->head_size && !s->near.most && !s->apart.most;
    if (!usual || d->ops->head_size(d->dev, d->dtype, s->head_dim, &rounded) != s->head_dim)
        return KV_F32;
    return rounded;
}

int decoder_kv_reserve(struct decoder *d, uint32_t n_blocks, uint32_t block_size,
                       enum kv_dtype dtype, uint32_t *has, struct err *e)
{
    const struct kv_desc k = {.n_layers = d->n_kv_layers ? d->n_kv_layers : 1,
                              .n_blocks = n_blocks,
                              .block_size = block_size,
                              .dtype = dtype,
                              .layers = d->kv_layers};
    if (d->kv && n_blocks <= *has)
        return 0;
    if (d->kv)
        d->ops->kv_free(d->dev, d->kv);
    *has = 0;
    if (!(d->kv = d->ops->kv_new(d->dev, &k, e)))
        return -1;
    *has = n_blocks;
    return 0;
}

/* *out: address of the rows that decoder_encode() returns. few: of decoder_run_layers(). */
static void last_rows(struct decoder *d, const struct ragged *b, bool few, const float **out)
{
    struct scratch *s = &d->scratch;
    const uint32_t hidden = d->spec.hidden, rows = b->n_out ? b->n_out : b->n_tokens;
    if (b->n_out && !few)
        d->ops->gather_out(d->dev, s->out, s->x, hidden);
    const float *x = b->n_out ? s->out : s->x;
    float *y = b->n_out ? s->out : s->n;
    if (!d->spec.no_final_norm)
        d->ops->norm(d->dev, y, x, rows, hidden, &d->final_norm);
    *out = d->spec.no_final_norm ? x : y;
}

int decoder_encode(struct decoder *d, const struct ragged *step, float *out, const float **at,
                   struct err *e)
{
    struct err late = ERR_INIT;
    const float *rows = NULL;
    const bool few = step->n_out && decoder_ends_few(d, step);
    assert(d->encodes && step->n_tokens);
    if (decoder_check(d, step, e) || decoder_reserve_pass(d, step->n_tokens, step->n_out, e) ||
        decoder_upload_positions(d, step, e) || decoder_upload_given(d, step, e) ||
        decoder_cross_begin(d, step, e))
        return -1;
    const struct ragged own = decoder_with_ids(d, step), *b = &own;
    if (d->ops->step_begin(d->dev, b, e))
        return -1;
    int rc = decoder_run_layers(d, b, few, e);
    d->cross.n = 0;
    if (rc == 0)
        last_rows(d, b, few, &rows);
    if (rc == 0 && d->front.finish)
        d->front.finish(d->front.arg, rows, 0, b->n_out ? b->n_out : b->n_tokens);
    if (d->ops->step_end(d->dev, rc ? &late : e) || rc)
        return -1;
    const size_t n = b->n_out ? b->n_out : b->n_tokens;
    if (at)
        *at = rows;
    return out ? d->ops->download(d->dev, out, rows, n * d->spec.hidden * sizeof(float), e) : 0;
}

int decoder_encode_logits(struct decoder *d, const struct ragged *b, const struct logit_reader *to,
                          struct err *e)
{
    struct err late = ERR_INIT;
    const uint32_t all = b->n_out ? b->n_out : b->n_tokens;
    const float *rows;
    assert(d->encodes_logits);
    if (decoder_reserve_pass(d, b->n_tokens, b->n_out + DECODER_LOGIT_ROWS, e) ||
        decoder_encode(d, b, NULL, &rows, e))
        return -1;
    for (uint32_t first = 0, n; first < all; first += n) {
        n = all - first < DECODER_LOGIT_ROWS ? all - first : DECODER_LOGIT_ROWS;
        if (d->ops->step_begin(d->dev, b, e))
            return -1;
        const int rc = decoder_logits_of(d, rows + (size_t)first * d->spec.hidden, n, e);
        if (d->ops->step_end(d->dev, rc ? &late : e) || rc ||
            (to->logits && decoder_fetch_logits(d, n, to->logits, e)))
            return -1;
        if (to->logits)
            to->each(to->arg, to->logits, first, n);
    }
    return 0;
}

/* ---------------------------------------------------------------- in parts */

/* What a part is of. */
enum { WALK_EMBED, WALK_STORE, WALK_REST, WALK_GATHER, WALK_FINISH, WALK_OVER };
enum { LEAST_ROWS = 16 }; /* with fewer rows, products only read weights */

static uint32_t out_rows(const struct decoder_walk *w)
{
    return w->b->n_out ? w->b->n_out : w->b->n_tokens;
}

static uint32_t walk_rows(const struct decoder_walk *w)
{
    return w->phase == WALK_FINISH ? out_rows(w) : w->b->n_tokens;
}

/* Most positions to which a token of the step attends. */
static uint64_t most_seen(const struct decoder *d, const struct decoder_walk *w)
{
    const struct ragged *b = w->b;
    uint64_t most = 0;
    for (uint32_t i = 0; i < b->n_spans; i++) {
        uint64_t n = b->spans[i].kv_len;
        if (b->mutual && d->spec.layers[w->layer].mutual == MUTUAL_ALONE) {
            const struct mutual *m = &b->mutual[b->spans[i].first];
            n = m->end - m->begin;
        }
        most = n > most ? n : most;
    }
    return most;
}

/* Multiply-adds of a row in the current phase, over all ranks. */
static uint64_t row_cost(const struct decoder *d, const struct decoder_walk *w)
{
    const struct decoder_spec *s = &d->spec;
    const uint64_t h = s->hidden, dim = spec_head_dim(s, w->layer);
    const uint64_t q = s->n_heads * dim, kv = spec_kv_heads(s, w->layer) * dim;
    const uint64_t matrices = s->mlp == MLP_PLAIN ? 2 : 3;
    switch (w->phase) {
    /* patches have about as many numbers */
    case WALK_EMBED:
    case WALK_FINISH:
        return h * h;
    case WALK_STORE:
        return h * (q + 2 * kv);
    case WALK_REST:
        return h * (q + matrices * spec_ffn(s, w->layer)) + 2 * q * most_seen(d, w);
    default:
        return h;
    }
}

/* Tokens [first, first + n) as a separate step; each attends to its whole sequence. A bias by
 * distance needs their positions, so kv_len stays that of the part, and the sequence is in
 * b->mutual. */
static struct ragged part_of(const struct decoder *d, const struct ragged *b, uint32_t first,
                             uint32_t n)
{
    struct span *spans = d->scratch.spans;
    struct ragged part = pass_cut(b, first, first + n, spans, d->scratch.out_rows);
    for (uint32_t i = 0, k = 0; i < b->n_spans && !d->spec.near.buckets; i++)
        if (b->spans[i].first < first + n && b->spans[i].first + b->spans[i].n > first)
            spans[k++].kv_len = b->spans[i].kv_len;
    part.n_out = 0;
    return part;
}

static int run_part(struct decoder *d, struct decoder_walk *w, uint32_t n, struct err *e)
{
    const struct decoder_part p = {w->row, n, w->b->n_tokens};
    switch (w->phase) {
    case WALK_EMBED:
        if (residual_of(&d->spec)->begin(d, &p, e))
            return -1;
        decoder_enter_layer(d, 0, &p);
        return 0;
    case WALK_STORE:
        return decoder_layer_store(d, w->layer, &p, e);
    case WALK_REST:
        if (decoder_layer_rest(d, w->layer, &p, e))
            return -1;
        if (d->front.after &&
            d->front.after(d->front.arg, w->layer, d->scratch.x + (size_t)w->row * d->spec.hidden,
                           w->row, n))
            decoder_enter_layer(d, w->layer + 1, &p);
        return 0;
    case WALK_GATHER:
        last_rows(d, w->b, false, &w->rows);
        return 0;
    default:
        if (d->front.finish)
            d->front.finish(d->front.arg, w->rows + (size_t)w->row * d->spec.hidden, w->row, n);
        return 0;
    }
}

static void next_phase(const struct decoder *d, struct decoder_walk *w)
{
    w->row = 0;
    if (w->phase == WALK_REST && ++w->layer < d->spec.n_layers)
        w->phase = WALK_STORE;
    else
        w->phase++;
    /* row_cost() */
    if (w->phase == WALK_GATHER)
        w->layer = 0;
    w->over = w->phase == WALK_OVER;
}

static int walk_part(struct decoder *d, struct decoder_walk *w, uint32_t n, struct err *e)
{
    struct err late = ERR_INIT;
    const bool all = w->phase == WALK_GATHER;                    /* its rows may be any */
    const uint32_t first = w->phase == WALK_FINISH ? 0 : w->row; /* results, not tokens */
    const struct ragged part = all ? *w->b : part_of(d, w->b, first, n);
    if (d->busy_ns)
        watch_busy(d->busy_ns);
    if (w->phase == WALK_EMBED && decoder_upload_given(d, &part, e))
        return -1;
    if (d->ops->step_begin(d->dev, &part, e))
        return -1;
    const int rc = run_part(d, w, n, e);
    if (d->ops->step_end(d->dev, rc ? &late : e) || rc)
        return -1;
    w->row += n;
    if (w->row == walk_rows(w))
        next_phase(d, w);
    return 0;
}

/* True if parts are whole texts: a window to both sides needs the positions of a part's tokens,
 * which a span whose keys are the whole text does not have. */
static bool whole_texts(const struct decoder_spec *s)
{
    for (uint32_t i = 0; s->both_ways && i < s->n_layers; i++)
        if (s->layers[i].window)
            return true;
    return false;
}

/* Number of rows of the next part for `left` operations, in whole units; 0: even the smallest
 * part costs more. */
static uint32_t part_rows(const struct decoder *d, const struct decoder_walk *w, uint64_t left)
{
    const uint32_t rest = walk_rows(w) - w->row;
    const uint32_t least = (LEAST_ROWS + w->unit - 1) / w->unit * w->unit;
    const uint64_t n = left / row_cost(d, w) / w->unit * w->unit;
    if (w->phase == WALK_GATHER || n >= rest)
        return rest;
    if (whole_texts(&d->spec))
        return left ? rest : 0;
    return n >= least ? (uint32_t)n : rest <= least && left >= rest * row_cost(d, w) ? rest : 0;
}

int decoder_walk_begin(struct decoder *d, const struct ragged *b, uint32_t unit,
                       struct decoder_walk *w, struct err *e)
{
    assert(d->encodes && b->n_tokens);
    assert(b->mutual || !d->spec.near.buckets);
    assert(!d->spec.embed_dim && !d->spec.per_layer && !d->spec.first_conv);
    *w = (struct decoder_walk){.b = b, .unit = unit};
    while (w->unit % DECODER_PART_ROWS)
        w->unit += unit;
    return decoder_check(d, b, e) || decoder_reserve_pass(d, b->n_tokens, b->n_out, e) ||
                   decoder_upload_positions(d, b, e)
               ? -1
               : 0;
}

int decoder_walk_on(struct decoder *d, struct decoder_walk *w, uint64_t most, uint64_t *done,
                    struct err *e)
{
    *done = 0;
    while (!w->over) {
        uint32_t n = part_rows(d, w, most > *done ? most - *done : 0);
        const uint32_t least = (LEAST_ROWS + w->unit - 1) / w->unit * w->unit;
        const uint32_t rest = walk_rows(w) - w->row;
        if (!n && *done)
            break;
        n = n ? n : rest < least ? rest : least; /* each call makes progress */
        const uint64_t cost = n * row_cost(d, w);
        if (walk_part(d, w, n, e))
            return -1;
        *done += cost;
    }
    return 0;
}
