#include "model-server/quantize/fold.h"
#include "model-server/backend/act.h"
#include "model-server/quantize/quantize.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1024, STEPS = 20 };

/* Matrices that read one vector, and its source: the weights (and bias) of a norm, or rows [row,
 * row + cols) of the preceding matrix (and its bias). */
struct fold {
    struct layer_tensor *readers[MOST];
    int n;
    const struct tap_input *in; /* of all that they read */
    struct layer_tensor *makers[2];
    uint64_t row, cols;
    float plus; /* added to the weights of the norm */
    bool norm;
};

/* ---------------------------------------------------------------- which belong together */

/* False: one of them cannot be scaled. A matrix without an observed product is not a reader. */
static bool add_reader(struct fold *f, struct layer_tensor *t)
{
    const struct tensor *s = t->s->t;
    if (f->n == MOST || s->n_dims != 2 || s->type == T_BLOCKS || tensor_type_bits(s->type) < 16 ||
        (f->cols && s->dims[1] != f->cols))
        return false;
    f->cols = s->dims[1];
    f->readers[f->n++] = t;
    return true;
}

static bool add_role(struct fold *f, struct layer_set *s, enum role role)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->t[i].s->use.role == role && strcmp(s->t[i].s->use.suffix, ".bias") != 0 &&
            !add_reader(f, &s->t[i]))
            return false;
    return true;
}

/* The readers of the norms before the mixer and before the feed-forward. */
static const enum role of_mixer[] = {W_QKV,
                                     W_Q,
                                     W_K,
                                     W_V,
                                     W_Q_A,
                                     W_KV_A,
                                     W_INDEX_K,
                                     W_INDEX_WEIGHTS,
                                     W_MIX_IN,
                                     W_MIX_Z,
                                     W_MIX_BETA,
                                     W_MIX_DECAY,
                                     W_MIX_BETA_DECAY,
                                     W_MIX_DECAY_DOWN,
                                     W_MIX_Z_DOWN,
                                     W_ATTN_GATE,
                                     W_ATTN_NORM_DOWN};
static const enum role of_ffn[] = {
    W_GATE_UP, W_GATE,        W_UP,        W_ROUTER,         W_MOE_GATE_UP,     W_MOE_GATE,
    W_MOE_UP,  W_SHARED_GATE, W_SHARED_UP, W_SHARED_GATE_UP, W_SHARED_GATE_OUT, W_MLP_NORM_DOWN};
enum {
    N_OF_MIXER = sizeof(of_mixer) / sizeof(of_mixer[0]),
    N_OF_FFN = sizeof(of_ffn) / sizeof(of_ffn[0])
};

static const struct tap_input *most_rows(const struct run *r, const struct fold *f)
{
    const struct tap_input *best = NULL;
    for (int i = 0; i < f->n; i++) {
        const struct tap_input *in = tap_find(&r->tap, f->readers[i]->s->t->name, 0);
        best = in && (!best || in->rows > best->rows) ? in : best;
    }
    return best && best->cols == f->cols ? best : NULL;
}

/* Readers of one norm, or none if they cannot all be scaled. */
static bool norm_fold(const struct run *r, struct layer_set *s, enum role norm, struct fold *f)
{
    const struct decoder_spec *d = walk_spec(r->walk);
    const bool both = d->parallel && d->shared_norm;
    const enum norm_place place = spec_norms(d, (uint32_t)s->layer);
    bool ok = norm_place_before(place) && place != NORM_STREAM && !d->moe.beside &&
              d->moe.layout == EXPERTS_SEPARATE;
    *f = (struct fold){.norm = true, .plus = d->norm.plus};
    for (int i = 0; ok && (norm == W_ATTN_NORM || both) && i < N_OF_MIXER; i++)
        ok = add_role(f, s, of_mixer[i]);
    if (ok && (norm == W_ATTN_NORM || both) && d->blocks.top)
        ok = add_role(f, s, W_INDEX_Q); /* an indexer of latent attention reads q's latent */
    for (int i = 0; ok && (norm == W_MLP_NORM || both) && i < N_OF_FFN; i++)
        ok = add_role(f, s, of_ffn[i]);
    f->makers[0] = layer_set_find(s, norm, -1, ".weight");
    f->makers[1] = layer_set_find(s, norm, -1, ".bias");
    f->in = ok ? most_rows(r, f) : NULL;
    return ok && f->n && f->makers[0] && f->in && f->makers[0]->s->t->n_dims == 1 &&
           f->makers[0]->s->t->dims[0] == f->cols && f->makers[0]->s->t->type != T_BLOCKS;
}

/* The matrix after a product that is linear in rows of another matrix. */
static bool pair_fold(const struct run *r, struct layer_set *s, enum role maker, enum role reader,
                      int expert, struct fold *f)
{
    struct layer_tensor *to = layer_set_find(s, reader, expert, ".weight");
    struct layer_tensor *from = layer_set_find(s, maker, expert, ".weight");
    *f = (struct fold){0};
    if (!to || !from || !add_reader(f, to) || from->s->t->n_dims != 2 ||
        from->s->t->type == T_BLOCKS || from->s->t->dims[0] != f->cols)
        return false;
    f->makers[0] = from;
    f->makers[1] = layer_set_find(s, maker, expert, ".bias");
    f->in = most_rows(r, f);
    return f->in != NULL;
}

/* ---------------------------------------------------------------- scaling */

static int read_all(struct fold *f, struct err *e)
{
    for (int i = 0; i < f->n; i++)
        if (layer_tensor_read(f->readers[i], e))
            return -1;
    for (int i = 0; i < 2; i++)
        if (f->makers[i] && layer_tensor_read(f->makers[i], e))
            return -1;
    return 0;
}

static void scale_maker(const struct fold *f, struct layer_tensor *t, const float *by)
{
    const bool matrix = t->s->t->n_dims == 2, bias = strcmp(t->s->use.suffix, ".bias") == 0;
    const uint64_t width = matrix ? t->s->t->dims[1] : 1;
    const float plus = f->norm && !bias ? f->plus : 0;
    for (uint64_t i = 0; i < f->cols; i++)
        for (uint64_t k = 0; k < width; k++) {
            float *w = &t->w[(f->row + i) * width + k];
            *w = (*w + plus) / by[i] - plus;
        }
}

static int apply(struct fold *f, const float *by, struct err *e)
{
    assert(f->cols > 0);
    for (int i = 0; i < f->n; i++) {
        struct layer_tensor *t = f->readers[i];
        for (uint64_t k = 0; k < t->s->t->dims[0] * f->cols; k++)
            t->w[k] *= by[k % f->cols];
        if (!t->by && !(t->by = malloc(f->cols * sizeof(*by))))
            return err_nomem(e);
        memcpy(t->by, by, f->cols * sizeof(*by));
    }
    for (int i = 0; i < 2; i++)
        if (f->makers[i])
            scale_maker(f, f->makers[i], by);
    return 0;
}

/* The greatest |w| of each column over all readers. */
static void column_most(const struct fold *f, float *out)
{
    memset(out, 0, f->cols * sizeof(*out));
    for (int i = 0; i < f->n; i++) {
        const struct layer_tensor *t = f->readers[i];
        for (uint64_t k = 0; k < t->s->t->dims[0] * f->cols; k++)
            out[k % f->cols] = fmaxf(out[k % f->cols], fabsf(t->w[k]));
    }
}

/* ---------------------------------------------------------------- SmoothQuant */

static int smooth(struct fold *f, struct err *e)
{
    float *by = calloc(f->cols, sizeof(*by));
    if (!by || read_all(f, e)) {
        free(by);
        return by ? -1 : err_nomem(e);
    }
    column_most(f, by);
    for (uint64_t c = 0; c < f->cols; c++) {
        const float s = sqrtf(f->in->most[c]) / sqrtf(fmaxf(by[c], 1e-5F));
        by[c] = isfinite(s) && s > 1e-5F ? s : 1;
    }
    const int rc = apply(f, by, e);
    free(by);
    return rc;
}

int fold_smooth(struct run *r, struct layer_set *s, struct err *e)
{
    static const enum role norms[] = {W_ATTN_NORM, W_MLP_NORM};
    struct fold f;
    for (int i = 0; i < 2; i++)
        if (norm_fold(r, s, norms[i], &f) && smooth(&f, e))
            return -1;
    return 0;
}

/* ---------------------------------------------------------------- AWQ */

struct trial {
    const struct run *r;
    const struct fold *f;
    const struct layer_tensor *t;
    const float *by;
    double *error; /* [rows] */
    bool failed;
};

/* For each row: squared change of the sample's outputs by rounding. */
static void try_rows(void *arg, int thread, size_t begin, size_t end)
{
    struct trial *j = arg;
    const struct grid_kind plain = {.bits = j->r->kind.grid.bits,
                                    .symmetric = j->r->kind.grid.symmetric,
                                    .scale = j->r->kind.grid.scale,
                                    .plain = true};
    const size_t cols = j->f->cols, group = j->r->kind.group ? j->r->kind.group : cols;
    const int most = grid_most(&plain);
    float *lost = calloc(cols, sizeof(*lost));
    (void)thread;
    for (size_t r = begin; lost && r < end; r++) {
        const float *w = j->t->w + r * cols;
        for (size_t c = 0; c < cols; c++)
            lost[c] = w[c] * j->by[c];
        for (size_t at = 0; at < cols; at += group) {
            const size_t n = cols - at < group ? cols - at : group;
            const struct grid g = grid_fit(&plain, lost + at, NULL, n);
            for (size_t c = at; c < at + n; c++)
                lost[c] = grid_number(&g, grid_code(&g, most, lost[c])) / j->by[c] - w[c];
        }
        double sum = 0;
        for (uint32_t i = 0; i < j->f->in->n_sample; i++) {
            const float *x = j->f->in->sample + i * cols;
            float y = 0;
            for (size_t c = 0; c < cols; c++)
                y += x[c] * lost[c];
            sum += (double)y * (double)y;
        }
        j->error[r] = sum;
    }
    if (!lost)
        __atomic_store_n(&j->failed, true, __ATOMIC_RELAXED);
    free(lost);
}

static double error_of(const struct run *r, const struct fold *f, const float *by, bool *failed)
{
    double sum = 0;
    for (int i = 0; i < f->n; i++) {
        const struct layer_tensor *t = f->readers[i];
        const size_t rows = t->s->t->dims[0];
        if (!t->quantise)
            continue;
        struct trial j = {r, f, t, by, malloc(rows * sizeof(double)), false};
        if (j.error)
            workers_run(&r->workers, try_rows, &j, rows);
        *failed |= !j.error || j.failed;
        for (size_t k = 0; !*failed && k < rows; k++)
            sum += j.error[k];
        free(j.error);
    }
    return sum;
}

/* s = mean|x|^a, around 1. */
static void scales(const struct fold *f, double a, float *by)
{
    float low = INFINITY, high = 0;
    for (uint64_t c = 0; c < f->cols; c++) {
        const double mean = (double)f->in->sum[c] / (double)f->in->rows;
        by[c] = fmaxf((float)pow(mean, a), 1e-4F);
        low = fminf(low, by[c]), high = fmaxf(high, by[c]);
    }
    const float middle = sqrtf(low * high);
    for (uint64_t c = 0; c < f->cols; c++)
        by[c] = isfinite(by[c] / middle) && by[c] / middle > 0 ? by[c] / middle : 1;
}

static int search(const struct run *r, struct fold *f, struct err *e)
{
    float *by = calloc(f->cols, sizeof(*by));
    double least = -1, best = 0;
    bool failed = !by || !f->in->n_sample;
    int rc = by ? read_all(f, e) : err_nomem(e);
    for (int t = 0; rc == 0 && !failed && t < STEPS; t++) {
        const double a = (double)t / STEPS;
        scales(f, a, by);
        const double error = error_of(r, f, by, &failed);
        if (least < 0 || error < least)
            least = error, best = a;
    }
    if (rc == 0 && failed && f->in->n_sample)
        rc = err_nomem(e);
    if (rc == 0 && !failed && best > 0) {
        scales(f, best, by);
        rc = apply(f, by, e);
    }
    free(by);
    return rc;
}

/* The output of attention is linear in v if every head has its own. */
static bool own_values(const struct run *r, const struct layer_set *s)
{
    const struct decoder_spec *d = walk_spec(r->walk);
    const struct layer_spec *l = &d->layers[s->layer];
    return l->mixer == MIXER_ATTENTION && !d->v_norm && !l->k_is_v && !d->kv_interleaved &&
           d->qkv == QKV_SEPARATE && d->n_heads == (l->n_kv_heads ? l->n_kv_heads : d->n_kv_heads);
}

int fold_awq(struct run *r, struct layer_set *s, struct err *e)
{
    static const enum role pairs[][2] = {
        {W_UP, W_DOWN}, {W_MOE_UP, W_MOE_DOWN}, {W_SHARED_UP, W_SHARED_DOWN}};
    const struct decoder_spec *d = walk_spec(r->walk);
    struct fold f;
    if (norm_fold(r, s, W_ATTN_NORM, &f) && search(r, &f, e))
        return -1;
    if (own_values(r, s) && pair_fold(r, s, W_V, W_O, -1, &f) && search(r, &f, e))
        return -1;
    if (norm_fold(r, s, W_MLP_NORM, &f) && search(r, &f, e))
        return -1;
    for (int p = 0; p < 3; p++) {
        const enum act act = p == 1 ? spec_moe_act(d, s->layer) : spec_act(d, s->layer);
        const bool plain = p == 0 ? d->mlp != MLP_GATED : d->moe.plain;
        for (uint32_t i = 0; !plain && !act_gated_only(act) && i < s->n; i++) {
            const struct arch_use *u = &s->t[i].s->use;
            if (u->role == pairs[p][1] && strcmp(u->suffix, ".weight") == 0 &&
                pair_fold(r, s, pairs[p][0], pairs[p][1], u->expert, &f) && search(r, &f, e))
                return -1;
        }
    }
    return 0;
}
