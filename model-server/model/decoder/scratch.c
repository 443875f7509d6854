/* scratch.c - the scratch memory of a pass: its size and its areas. */
#include "model-server/model/decoder_impl.h"
#include "model-server/model/pass.h"
#include "model-server/model/residual.h"
#include <assert.h>
#include <stdlib.h>

/* Assigns the next rows * width floats after `at` to *p, at a 64-byte boundary; with `base` NULL
 * only counts. */
static size_t place(float **p, char *base, size_t at, size_t rows, size_t width)
{
    assert(at % WORK_ALIGN == 0); /* for vector loads of devices */
    *p = base ? (float *)(void *)(base + at) : NULL;
    return at + ((rows * width * sizeof(float) + 63) & ~(size_t)63);
}

/* The areas of a sublayer: see work_take(). */
static size_t place_work(void **p, char *base, size_t at, size_t rows, size_t width)
{
    float *first;
    at = place(&first, base, at, rows, width);
    *p = first;
    return at + (width ? WORK_MAX_AREAS * WORK_ALIGN : 0);
}

/* Of the model, or of a draft head with its own rotation. */
static uint32_t rope_dim(const struct decoder *d, int i)
{
    const uint32_t own = i == 0 ? d->draft.plan.rope_dim : 0, dim = d->spec.rope[i].dim;
    return dim > own ? dim : own;
}

/* Numbers of a token's selection. */
static uint32_t selected_of(const struct decoder *d)
{
    const struct decoder_spec *m = &d->spec;
    if (m->entries.q_rank)
        return m->entries.index_top;
    if (m->blocks.heads)
        return m->blocks.top;
    return m->blocks.top ? m->blocks.top * split_kv_heads(&d->split, m, 0).n : m->mla.index.top;
}

/* Factors of a token's residual streams. */
static size_t factors_of(const struct decoder_spec *m)
{
    const struct mix whole = {.n = m->mix.n, .rounds = m->mix.rounds};
    return m->altup.n ? (size_t)m->altup.n * m->altup.n : mix_factors(&whole);
}

static size_t streams_of(const struct decoder_spec *m)
{
    return m->altup.n ? m->altup.n : m->mix.n + residual_blended_slots(m);
}

/* Most rows of a tile. */
static size_t tile_rows(const struct decoder *d)
{
    return d->adapters || !d->ops->tile_rows ? SIZE_MAX : d->ops->tile_rows(d->dev);
}

uint32_t decoder_tiles(const struct decoder *d, uint32_t rows)
{
    const size_t most = tile_rows(d);
    return (uint32_t)(rows / most + (rows % most != 0));
}

struct slice decoder_tile(uint32_t rows, uint32_t i, uint32_t n)
{
    const uint32_t units = (rows + DECODER_PART_ROWS - 1) / DECODER_PART_ROWS;
    struct slice s = slice_of(units, i, n);
    s.first *= DECODER_PART_ROWS, s.n *= DECODER_PART_ROWS;
    s.n = s.n < rows - s.first ? s.n : rows - s.first;
    return s;
}

/* Areas of the sublayers of a layer. Between its mixer and its feed-forward a decoder needs none of
 * them. An encoder stores keys and values of all rows before the first feed-forward, in parts. */
static size_t place_sublayers(const struct decoder *d, struct scratch *s, char *base, size_t at,
                              size_t t)
{
    const size_t tile = tile_rows(d), rows = t < tile ? t : tile;
    const size_t mixer_end = place_work(&s->mixer, base, at, t, d->mixer_width);
    const size_t ffn_at = d->encodes ? mixer_end : at;
    const size_t ffn_end = place_work(&s->ffn, base, ffn_at, t, d->ffn_width);
    const size_t tile_end = place_work(&s->ffn, base, ffn_at, rows, d->tile_width);
    const size_t end = tile_end > ffn_end ? tile_end : ffn_end;
    return end > mixer_end ? end : mixer_end;
}

static size_t layout(const struct decoder *d, struct scratch *s, char *base, size_t t, size_t o)
{
    const struct decoder_spec *m = &d->spec;
    const size_t world = (size_t)d->split.world,
                 logits = decoder_has_head(d) ? d->split.vocab_most : 0;
    size_t at = 0;
    float *top, *kinds;
    at = place(&s->x, base, at, t, m->hidden);
    at = place(&s->n, base, at, t, m->hidden);
    at = place(&s->r, base, at, t, m->hidden);
    at = place(&s->embedded, base, at, t,
               spec_reads_embedding(m) || d->draft.plan.own || m->first_conv || m->embed_trigram
                   ? m->hidden
                   : 0);
    at = place(&s->crossed, base, at, t, decoder_cross_layers(d) ? m->hidden : 0);
    at = place(&s->carried, base, at, t,
               m->moe.shortcut || m->moe.early_router || m->moe.router_width || m->two_stacks ||
                       m->sphere.before_turns || m->rwkv.decay
                   ? m->hidden
                   : 0);
    at = place(&s->streams, base, at, t * streams_of(m), m->hidden);
    for (int i = 0; i < KEPT_PLACES; i++)
        at = place(&s->kept[i], base, at, t, m->skip_share != 0 ? m->hidden : 0);
    at = place(&s->k_in, base, at, t, m->blend_per && m->profiles.dim ? m->hidden : 0);
    at = place(&s->v_in, base, at, t, m->blend_per && m->profiles.dim ? m->hidden : 0);
    at = place(&s->routed, base, at, t, m->altup.n);
    at = place(&s->coefs, base, at, t, factors_of(m));
    at = place(&s->narrow, base, at, t, m->laurel_rank);
    at = place(&s->beside, base, at, t, m->laurel_rank ? m->hidden : 0);
    at = place_sublayers(d, s, base, at, t);
    for (int i = 0; i < SPEC_MAX_ROPES; i++)
        at = place(&s->rope[i], base, at, t, rope_dim(d, i));
    at = place(&s->q_scale, base, at, t, m->q_growth.length > 0);
    at = place(&kinds, base, at, t, m->relative.reach ? 1 : 0);
    s->kinds = (uint32_t *)(void *)kinds;
    at = place(&top, base, at, t, selected_of(d));
    s->top = (uint32_t *)(void *)top;
    at = place(&s->hidden, base, at, t, d->draft.ops ? d->draft.plan.width : 0);
    at = place(&s->out, base, at, o, m->hidden);
    at = place(&s->logits, base, at, o, logits);
    at = place(&s->gathered, base, at, world > 1 ? o * world : 0, logits);
    return at;
}

static size_t host_floats(const struct decoder *d, size_t t, size_t o)
{
    const bool gathers = d->split.world > 1 && decoder_has_head(d);
    size_t most = gathers ? o * (size_t)d->split.world * d->split.vocab_most : 0;
    const size_t hidden = d->draft.ops ? t * d->draft.plan.width : 0;
    const size_t named = d->draft.ids ? d->draft.own->spec.vocab : 0; /* a row of its logits */
    uint32_t width;
    residual_rows(d, &width);
    const size_t rows_on = stage_copies(d) ? t * width : 0;
    const size_t shared = stage_copies(d) ? o * d->split.vocab.n : 0;
    most = hidden > most ? hidden : most;
    most = rows_on > most ? rows_on : most;
    most = shared > most ? shared : most;
    most = named > most ? named : most;
    for (int i = 0; i < SPEC_MAX_ROPES; i++) {
        const size_t rows = t * rope_dim(d, i);
        most = rows > most ? rows : most;
    }
    return most > t ? most : t;
}

/* Each pass reads all weights: with fewer rows this costs more than rows that leave the cache, up
 * to some times what fits. Experts get a part of the rows each. */
enum { SMALLEST_PASS = 256, SMALL_PASS = 512, BEYOND_CACHE = 4 };

static uint64_t small_pass(const struct decoder *d)
{
    const uint64_t tile = d->ops->tile_rows ? d->ops->tile_rows(d->dev) : SMALL_PASS;
    return d->experts.elements || 2 * tile > SMALL_PASS ? SMALL_PASS : 2 * tile;
}

uint32_t decoder_pass_of(const struct decoder *d, uint32_t tokens)
{
    struct scratch s;
    const uint32_t sample = 1024;
    const uint64_t small = small_pass(d);
    uint64_t most = d->ops->step_bytes / (layout(d, &s, NULL, sample, 0) / sample);
    if (!d->ops->step_bytes)
        return tokens;
    if (most < small)
        most = BEYOND_CACHE * most < small ? BEYOND_CACHE * most : small;
    most = most > SMALLEST_PASS ? most : SMALLEST_PASS;
    return tokens < most ? tokens : (uint32_t)most;
}

uint64_t decoder_scratch_bytes(const struct decoder *d, uint32_t max_tokens, uint32_t max_out)
{
    struct scratch s;
    max_tokens = decoder_pass_of(d, max_tokens);
    return layout(d, &s, NULL, max_tokens, max_out) +
           host_floats(d, max_tokens, max_out) * sizeof(float);
}

int decoder_reserve_pass(struct decoder *d, uint32_t max_tokens, uint32_t max_out, struct err *e)
{
    struct scratch *s = &d->scratch;
    if (max_tokens <= s->max_tokens && max_out <= s->max_out)
        return 0;
    max_tokens = max_tokens > s->max_tokens ? max_tokens : s->max_tokens;
    max_out = max_out > s->max_out ? max_out : s->max_out;
    d->ops->free(d->dev, s->memory);
    free(s->host), free(s->spans), free(s->out_rows), free(s->ids), free(s->last);
    free(s->last_spans);
    *s =
        (struct scratch){.given = s->given, .given_host = s->given_host, .cap_given = s->cap_given};
    size_t bytes = layout(d, s, NULL, max_tokens, max_out);
    size_t host = host_floats(d, max_tokens, max_out);
    if (!(s->memory = d->ops->alloc(d->dev, bytes, e)))
        return -1;
    s->host = malloc((host ? host : 1) * sizeof(float));
    s->ids = malloc((max_tokens + (size_t)1) * sizeof(*s->ids));
    s->spans = malloc((max_tokens + (size_t)1) * sizeof(*s->spans));
    s->out_rows = malloc((max_out + (size_t)1) * sizeof(*s->out_rows));
    s->last = malloc(PASS_ROW_WORDS * (max_out + (size_t)1) * sizeof(*s->last));
    s->last_spans = malloc((max_out + (size_t)1) * sizeof(*s->last_spans));
    if (!s->host || !s->spans || !s->out_rows || !s->ids || !s->last || !s->last_spans)
        return err_nomem(e);
    layout(d, s, s->memory, max_tokens, max_out);
    s->max_tokens = max_tokens;
    s->max_out = max_out;
    return 0;
}

int decoder_reserve(struct decoder *d, uint32_t max_tokens, uint32_t max_out, struct err *e)
{
    return decoder_reserve_pass(d, decoder_pass_of(d, max_tokens), max_out, e);
}

uint32_t decoder_pass_tokens(const struct decoder *d) { return decoder_pass_of(d, UINT32_MAX); }
