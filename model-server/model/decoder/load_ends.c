/* load_ends.c - loads what is before and after the layers of a decoder: tables of tokens
 * and positions, norms, the head. */
#include "common/log/log.h"
#include "model-server/backend/numbers.h"
#include "model-server/model/decoder_impl.h"
#include "model-server/model/first_conv.h"
#include "model-server/model/loader/loader.h"
#include "model-server/model/residual.h"
#include "model-server/model/static_rows.h"
#include "model-server/model/trigram.h"
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double UNIT_LEAST = 1e-12; /* of a length that divides a row of the head */

struct norm loader_norm(struct loader *l, enum role role, int layer)
{
    const struct decoder_spec *s = &l->d->spec;
    const uint32_t width = role == W_EMBED_NORM ? spec_embed_dim(s) : s->hidden;
    const bool post = role == W_POST_ATTN_NORM || role == W_POST_MLP_NORM;
    const float post_plus = post ? s->norm.post_plus[role == W_POST_MLP_NORM] : 0;
    const float plus = post_plus != 0 ? post_plus : s->norm.plus;
    struct norm n = {.kind = s->norm.kind, .eps = s->norm.eps};
    if (post && s->norm.post_eps != 0)
        n.eps = s->norm.post_eps;
    if (s->sphere.rate != 0) {
        n.eps = spec_norm_eps(s, width);
        n.w = loader_constants(l, width, 1 / sqrtf((float)width));
        return n;
    }
    if (s->norm.bare || (s->norm.plain_ends && role == W_EMBED_NORM))
        n.w = loader_ones(l, width);
    else
        n.w = loader_norm_vector(l, role, layer, width,
                                 s->norm.plain_ends && role == W_FINAL_NORM ? 0 : plus);
    n.b = s->bias.norm ? loader_bias(l, role, layer, width) : NULL;
    return n;
}

struct norm loader_stream_norm(struct loader *l, enum role role, int layer, uint32_t n)
{
    struct norm y = loader_norm(l, role, layer);
    if (l->d->spec.stream_mean)
        y.eps *= (float)n;
    return y;
}

/* Tied or not, the whole head is read for every token and is a fifth of a small model. So it is
 * quantised too, separate from a tied table; loader_head_bits() comes first. Never with 4 bits,
 * which would cost a tenth of the quality that the layers' 4 bits cost (docs/results/quality.md).
 * With 8-bit activations if the layers use them: with exact ones a batch of 16 would spend half of
 * its step here. */
enum quant loader_head_quant(enum quant q) { return q == QUANT_INT4 ? QUANT_W8A8 : q; }

/* Computes the table of positions: see enum sines. */
static void load_sines(struct loader *l)
{
    struct decoder *d = l->d;
    const uint32_t width = d->spec.hidden, n = width / 2, rows = spec_position_rows(&d->spec);
    const uint32_t over = d->spec.sines == SINES_OF_HALF ? n : n - 1;
    float *of = malloc((size_t)rows * width * sizeof(*of));
    if (!of) {
        loader_nomem(l);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        const float turn = expf((float)i * -(float)(log(10000) / over));
        for (uint32_t p = 0; p < rows; p++) {
            of[(size_t)p * width + i] = sinf((float)p * turn);
            of[(size_t)p * width + n + i] = cosf((float)p * turn);
        }
    }
    d->positions = loader_host_matrix(l, of, rows, width);
    free(of);
}

/* A row for each position and token type: the sums of their tables, in fp32; without learned
 * positions, only of types. Random ones need no sum. */
static void load_positions(struct loader *l)
{
    struct decoder *d = l->d;
    const struct decoder_spec *s = &d->spec;
    const int64_t n = spec_position_rows(s), types = s->token_types ? s->token_types : 1;
    const uint32_t width = s->narrow_head ? s->hidden : spec_embed_dim(s);
    if (!s->token_types || !l->c) {
        const enum role role = l->a->names[W_POSITIONS] ? W_POSITIONS : W_TOKEN_TYPES;
        struct mat_part p = loader_part(l, role, NO_LAYER, NO_EXPERT, false, n * types, width);
        d->positions = loader_pack(l, &p, 1, d->dtype, QUANT_NONE);
        return;
    }
    struct mat_part at = {0};
    if (l->a->names[W_POSITIONS])
        at = loader_rows(
            loader_part(l, W_POSITIONS, NO_LAYER, NO_EXPERT, false, n + s->more_positions, width),
            0, (uint32_t)n);
    struct mat_part of = loader_part(l, W_TOKEN_TYPES, NO_LAYER, NO_EXPERT, false, types, width);
    struct mat_part task = {0};
    if (s->token_tasks)
        task = loader_part(l, W_TOKEN_TASKS, NO_LAYER, NO_EXPERT, false, s->token_tasks, width);
    loader_make_numbers(l, &at, 1, DT_F32, QUANT_NONE);
    loader_make_numbers(l, &of, 1, DT_F32, QUANT_NONE);
    loader_make_numbers(l, &task, 1, DT_F32, QUANT_NONE);
    float *sums = malloc((size_t)(n * types) * width * sizeof(*sums));
    if (!sums)
        loader_nomem(l);
    for (int64_t t = 0; sums && t < types && !l->failed; t++)
        for (int64_t i = 0; i < n * width; i++)
            sums[t * n * width + i] = (at.data ? number_at(at.data, at.dtype, i) : 0) +
                                      number_at(of.data, of.dtype, t * width + i % width) +
                                      (task.data ? number_at(task.data, task.dtype, i % width) : 0);
    d->positions = loader_host_matrix(l, sums, n * types, width);
    free(sums);
}

/* The rows [rows, cols] of a part, divided by their lengths; the caller frees the data. */
static float *unit_rows(struct loader *l, struct mat_part *p)
{
    loader_numbers(l, p);
    float *of = l->failed ? NULL : malloc((size_t)(p->rows * p->cols) * sizeof(*of));
    if (!of && !l->failed)
        loader_nomem(l);
    for (int64_t r = 0; of && r < p->rows; r++) {
        float *row = of + r * p->cols;
        double squares = 0;
        for (int64_t i = 0; i < p->cols; i++) {
            row[i] = number_at(p->data, p->dtype, r * p->row_stride + i * p->col_stride);
            squares += (double)row[i] * row[i];
        }
        const double length = sqrt(squares);
        for (int64_t i = 0; i < p->cols; i++)
            row[i] = (float)(row[i] / (length > UNIT_LEAST ? length : UNIT_LEAST));
    }
    *p = (struct mat_part){.data = of,
                           .dtype = DT_F32,
                           .rows = p->rows,
                           .cols = p->cols,
                           .row_stride = p->cols,
                           .col_stride = 1,
                           .name = p->name};
    return of;
}

static void load_head_bias(struct loader *l)
{
    struct decoder *d = l->d;
    const uint32_t n = d->spec.vocab;
    const struct slice v = d->split.vocab;
    struct mat_part p;
    if (!l->a->names[W_HEAD_BIAS])
        p = loader_part(l, W_HEAD, NO_LAYER, NO_EXPERT, true, n, 1);
    else if (!l->c || loader_has_named(l, W_HEAD_BIAS, NO_LAYER))
        p = loader_table(l, W_HEAD_BIAS, NO_LAYER, "", n, 1);
    else
        return;
    loader_found_all(l, W_HEAD_BIAS); /* some files have it twice */
    p = loader_rows(p, v.first, v.n);
    d->head_bias = loader_vector(l, &p, 1, 0);
}

/* Ids that are never generated: a bias below every logit. */
static void load_mutes(struct loader *l)
{
    const struct decoder_spec *s = &l->d->spec;
    const struct slice v = l->d->split.vocab;
    float *host = calloc(v.n ? v.n : 1, sizeof(*host));
    if (!host) {
        loader_nomem(l);
        return;
    }
    for (uint32_t i = 0; i < v.n; i++)
        host[i] = v.first + i - s->first_mute < s->n_mute ? -FLT_MAX : 0;
    l->d->head_bias = loader_host_vector(l, host, v.n);
    free(host);
}

/* Freed with the loader's other copies. */
static struct mat_part static_part(struct loader *l)
{
    const struct decoder_spec *s = &l->d->spec;
    float *rows = static_rows_load(l->c, l->e);
    if (rows)
        l->copies[l->n_copies++] = rows;
    else
        l->failed = true;
    return (struct mat_part){.data = rows,
                             .dtype = DT_F32,
                             .rows = s->vocab,
                             .cols = s->hidden,
                             .row_stride = s->hidden,
                             .col_stride = 1};
}

/* This rank's rows of the table of embeddings, which may be in two tensors. Returns how many parts
 * it is. */
static int embed_parts(struct loader *l, struct mat_part parts[2])
{
    static const enum role roles[] = {W_EMBED, W_EMBED_MORE};
    const struct decoder_spec *s = &l->d->spec;
    const struct slice v = l->d->split.vocab;
    const uint32_t width = spec_embed_dim(s);
    const int64_t all = (int64_t)s->vocab + s->more_embeds;
    if (s->static_rows && l->c) {
        parts[0] = loader_rows(static_part(l), v.first, v.n);
        return 1;
    }
    if (!l->c || !l->a->names[W_EMBED_MORE]) {
        parts[0] = loader_part(l, W_EMBED, NO_LAYER, NO_EXPERT, false, all, width);
        parts[0] = loader_rows(parts[0], v.first, v.n);
        return 1;
    }
    int n = 0;
    uint64_t at = 0, end;
    for (int i = 0; i < 2 && !l->failed && at < s->vocab; i++, at = end) {
        const struct tensor *t = loader_tensor(l, roles[i], NO_LAYER);
        const uint64_t rows = t && t->n_dims == 2 ? t->dims[0] : 0;
        const struct mat_part p =
            loader_plain_matrix(l, roles[i], NO_LAYER, (int64_t)(rows ? rows : 1), width);
        end = at + rows < s->vocab ? at + rows : s->vocab;
        const uint64_t first = v.first > at ? v.first : at;
        const uint64_t last = v.first + v.n < end ? v.first + v.n : end;
        if (first < last)
            parts[n++] = loader_rows(p, (uint32_t)(first - at), (uint32_t)(last - first));
    }
    if (!l->failed && at < s->vocab) {
        err_set(l->e, ERR_VALIDATION, "there are embeddings of %llu tokens, not of %u",
                (unsigned long long)at, s->vocab);
        l->failed = true;
    }
    if (l->d->sample && n) { /* all ranks shall measure the same: one row, repeated */
        parts[0].rows = v.n;
        parts[0].row_stride = 0;
        return 1;
    }
    return n;
}

/* The head's rows: an embedding, and columns that are rows of a tensor of their own. */
static void load_joined_head(struct loader *l)
{
    struct decoder *d = l->d;
    const struct decoder_spec *s = &d->spec;
    const struct slice v = d->split.vocab;
    const size_t more = s->head_more, own = s->hidden - more, vocab = s->vocab;
    const enum role role = !s->tied || loader_own_head(l) ? W_HEAD : W_EMBED;
    float *first = loader_floats(l, role, NO_LAYER, NO_EXPERT, ".weight", s->vocab, (int64_t)own);
    float *second =
        loader_floats(l, W_HEAD_MORE, NO_LAYER, NO_EXPERT, ".weight", s->head_more, s->vocab);
    float *of = malloc((size_t)v.n * s->hidden * sizeof(*of));
    if (!of)
        loader_nomem(l);
    for (size_t r = 0; first && second && of && r < v.n; r++) {
        const size_t id = v.first + r;
        memcpy(of + r * s->hidden, first + id * own, own * sizeof(*of));
        for (size_t c = 0; c < more; c++)
            of[r * s->hidden + own + c] = second[c * vocab + id];
    }
    d->head = l->failed ? NULL : loader_host_matrix(l, of, v.n, s->hidden);
    free(first), free(second), free(of);
}

/* Of a head of its own, which may be as high as the table of embeddings. */
static int64_t head_rows(const struct loader *l)
{
    const struct decoder_spec *s = &l->d->spec;
    const int64_t all = (int64_t)s->vocab + s->more_embeds;
    return (int64_t)loader_height(l, W_HEAD, NO_LAYER) == all ? all : s->vocab;
}

static void load_head(struct loader *l, struct amount embed)
{
    struct decoder *d = l->d;
    const struct decoder_spec *s = &d->spec;
    const struct slice v = d->split.vocab;
    const struct amount before = d->weights;
    struct mat_part p[2];
    d->head = d->stage.begins ? d->embed : NULL;
    /* trained separately; transformers 5 does the same */
    bool own = s->tied && loader_own_head(l);
    if (own)
        log_msg(LOG_WARN,
                "config.json ties the head to the embedding; another is stored, and used");
    const enum role role = !s->tied || own ? W_HEAD : W_EMBED;
    const uint32_t bits = loader_head_bits(l, role);
    const enum quant quant = bits ? QUANT_NONE : loader_head_quant(d->quant);
    if (s->head_more) {
        load_joined_head(l);
    } else if (!s->tied || own || quant || bits || !d->stage.begins) {
        const uint32_t width = s->narrow_head ? s->embed_dim : s->hidden;
        int n = 1;
        if (role == W_EMBED)
            n = embed_parts(l, p);
        else
            p[0] =
                loader_rows(loader_part(l, role, NO_LAYER, NO_EXPERT, false, head_rows(l), width),
                            v.first, v.n);
        float *unit = s->unit_head && l->c && !d->sample ? unit_rows(l, p) : NULL;
        if (bits)
            loader_round(l, p, n, bits);
        d->head = loader_pack(l, p, n, d->dtype, quant);
        free(unit);
        if (role == W_EMBED) {
            d->copies.bytes = d->weights.bytes - before.bytes;
            d->copies.elements = d->weights.elements - before.elements;
        }
    }
    if (d->stage.begins && d->head == d->embed) { /* it is a matrix of a product as well */
        d->tables.bytes -= embed.bytes;
        d->tables.elements -= embed.elements;
    }
    if (s->narrow_head || s->head_dense) {
        const uint32_t rows = s->narrow_head ? s->embed_dim : s->hidden;
        p[0] = loader_part(l, W_HEAD_PROJECT, NO_LAYER, NO_EXPERT, false, rows, s->hidden);
        d->head_project = loader_pack(l, p, 1, d->dtype, QUANT_NONE);
    }
    if (s->head_dense_bias)
        d->head_project_bias = loader_bias(l, W_HEAD_PROJECT, NO_LAYER, s->hidden);
    if (s->head_dense)
        d->head_norm = loader_norm(l, W_HEAD_NORM, NO_LAYER);
    if (s->bias.head)
        load_head_bias(l);
    else if (s->n_mute)
        load_mutes(l);
    if (s->sphere.rate != 0)
        d->head_factors = loader_factors(l, W_SPHERE_HEAD, NO_LAYER, s->vocab, d->split.vocab,
                                         s->sphere.head, false);
}

static void load_embed_project(struct loader *l)
{
    const struct decoder_spec *s = &l->d->spec;
    struct mat_part p =
        loader_part(l, W_EMBED_PROJECT, NO_LAYER, NO_EXPERT, false, s->hidden, s->embed_dim);
    l->d->embed_project = loader_pack(l, &p, 1, l->d->dtype, QUANT_NONE);
    if (!s->narrow_head)
        l->d->embed_bias = loader_bias(l, W_EMBED_PROJECT, NO_LAYER, s->hidden);
}

/* The rows a of all adapters inside the checkpoint side by side, and ones: struct inside_spec. */
static void load_inside(struct loader *l)
{
    struct decoder *d = l->d;
    const struct decoder_spec *s = &d->spec;
    const uint32_t n = s->inside.n, rank = s->inside.rank, width = spec_inside_width(s);
    const int64_t rows = s->vocab;
    if (!l->c || d->sample)
        return;
    assert(rows > 0 && width > 0);
    struct mat_part of = loader_table(l, W_EMBED_INSIDE, NO_LAYER, "", n * rows, rank);
    loader_numbers(l, &of);
    float *table = l->failed ? NULL : calloc((size_t)rows * width, sizeof(*table));
    if (!table && !l->failed)
        loader_nomem(l);
    for (int64_t i = 0; table && i < rows; i++) {
        float *row = table + (size_t)i * width;
        for (uint32_t t = 0; t < n; t++)
            for (uint32_t r = 0; r < rank; r++)
                row[(size_t)t * rank + r] = number_at(of.data, of.dtype, (t * rows + i) * rank + r);
        row[(size_t)n * rank] = 1;
    }
    d->embed_inside = table ? loader_host_matrix(l, table, rows, width) : NULL;
    free(table);
}

/* Loads everything before the layers. Returns the size of the embedding table. */
struct amount decoder_load_first(struct loader *l)
{
    struct decoder *d = l->d;
    const struct decoder_spec *s = &d->spec;
    if (!d->front.embed) {
        struct mat_part p[2];
        const int n = embed_parts(l, p);
        d->embed = loader_pack(l, p, n, s->static_rows ? DT_F32 : d->dtype, QUANT_NONE);
    }
    const struct amount embed = d->tables = d->weights;
    decoder_other_load(l);
    if (s->inside.n) {
        load_inside(l);
        d->tables = d->weights;
    }
    if (s->embed_trigram) {
        d->trigram = trigram_load(l);
        d->tables = d->weights;
    } else if (s->learned_positions) {
        if (s->sines)
            load_sines(l);
        else
            load_positions(l);
        d->tables = d->weights;
    }
    if (s->embed_norm)
        d->embed_norm = loader_norm(l, W_EMBED_NORM, NO_LAYER);
    if (s->embed_dim && !s->embed_trigram)
        load_embed_project(l);
    if (s->altup.n)
        decoder_altup_load(l);
    if (s->two_stacks)
        decoder_stacks_load(l);
    if (s->affine)
        decoder_affine_load_first(l);
    if (s->first_conv)
        d->first_conv = first_conv_load(l);
    return embed;
}

void decoder_load_last(struct loader *l, struct amount embed)
{
    struct decoder *d = l->d;
    if (!d->spec.no_final_norm)
        d->final_norm = loader_stream_norm(l, W_FINAL_NORM, NO_LAYER, 2 * d->spec.n_layers + 1);
    residual_load_last(l);
    if (decoder_has_head(d))
        load_head(l, embed);
}

void decoder_load_ends(struct loader *l)
{
    const struct stage *g = &l->d->stage;
    const struct amount embed = g->begins ? decoder_load_first(l) : (struct amount){0};
    if (g->ends)
        decoder_load_last(l, embed);
}
