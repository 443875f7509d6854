#include "common/gguf/family.h"
#include "model-server/model/checkpoint/gguf_latent.h"
#include "model-server/model/checkpoint/gguf_names.h"
#include "model-server/model/checkpoint/gguf_order.h"
#include "model-server/model/checkpoint/gguf_weights_impl.h"
#include "model-server/model/checkpoint/quant/blocks.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 256 };

static bool is_norm(enum role r)
{
    return r == W_FINAL_NORM || r == W_ATTN_NORM || r == W_POST_ATTN_NORM || r == W_MLP_NORM ||
           r == W_POST_MLP_NORM || r == W_Q_NORM || r == W_K_NORM || r == W_INDEX_Q_NORM ||
           r == W_INDEX_K_NORM;
}

/* Tensors of three dimensions: a matrix of each stream. */
static bool has_experts(enum role r) { return r == W_MOE_GATE || r == W_MOE_UP || r == W_MOE_DOWN; }

/* ---------------------------------------------------------------- names */

/* Memory that is freed with `w`; NULL: out of memory. Takes over `p` in any case. */
void *gguf_weights_own(struct gguf_weights *w, void *p)
{
    if (w->n_owned == w->cap_owned) {
        uint32_t cap = w->cap_owned ? w->cap_owned * 2 : 256;
        void **more = p ? realloc(w->owned, cap * sizeof(*more)) : NULL;
        if (!more) {
            free(p);
            return NULL;
        }
        w->owned = more;
        w->cap_owned = cap;
    }
    if (p)
        w->owned[w->n_owned++] = p;
    return p;
}

/* `spelling`, up to a | or its end, with the layer for the first * and the expert for the
 * second. */
static const char *spelt(struct gguf_weights *w, const char *spelling, const struct gguf_use *u,
                         unsigned expert)
{
    char out[NAME_BYTES];
    size_t n = 0;
    unsigned index = (unsigned)u->layer;
    for (const char *p = spelling; *p && *p != '|' && n < NAME_BYTES - 32; p++) {
        if (*p != '*') {
            out[n++] = *p;
            continue;
        }
        n += (size_t)snprintf(out + n, NAME_BYTES - n, "%u", index);
        index = expert;
    }
    snprintf(out + n, NAME_BYTES - n, "%s", u->suffix);
    return gguf_weights_own(w, strdup(out));
}

/* Among several spellings the last one with `stars` stars; else the last one. */
static const char *with_stars(const char *spelling, int stars)
{
    const char *found = NULL, *p = spelling;
    for (;; p = strchr(p, '|') + 1) {
        const char *end = strchr(p, '|');
        int n = 0;
        for (const char *q = p; *q && q != end; q++)
            n += *q == '*';
        found = n == stars ? p : found;
        if (!end)
            return found ? found : p;
    }
}

/* If all experts may be in one tensor, the name of a single expert. */
const char *gguf_weights_spell(struct gguf_weights *w, const struct arch *a,
                               const struct gguf_use *u, unsigned expert)
{
    return spelt(w, with_stars(a->names[u->role], has_experts(u->role) ? 2 : 1), u, expert);
}

const char *gguf_weights_spell_all(struct gguf_weights *w, const struct arch *a,
                                   const struct gguf_use *u)
{
    return spelt(w, with_stars(a->names[u->role], 1), u, 0);
}

/* ---------------------------------------------------------------- tensors */

int gguf_weights_add(struct gguf_weights *w, const struct tensor *t, struct err *e)
{
    if (w->n == w->cap) {
        uint32_t cap = w->cap ? w->cap * 2 : 512;
        struct tensor *more = realloc(w->tensors, cap * sizeof(*more));
        if (!more)
            return err_nomem(e);
        w->tensors = more;
        w->cap = cap;
    }
    if (!t->name)
        return err_nomem(e);
    w->tensors[w->n++] = *t;
    return 0;
}

/* Copies vectors and small tables, in fp32, in the family's order: `each` elements in the order
 * of `row_at`, or unchanged. */
static float *copy(struct gguf_weights *w, struct tensor *t, const uint32_t *row_at, uint64_t each,
                   struct err *e)
{
    const uint8_t *from = t->data;
    if (t->type != T_F32) {
        err_set(e, ERR_VALIDATION, "%s: tensor `%s` has dtype %s; it must be F32", t->file, t->name,
                tensor_type_name(t->type));
        return NULL;
    }
    float *to = gguf_weights_own(w, malloc(t->bytes ? t->bytes : 1));
    if (!to) {
        err_nomem(e);
        return NULL;
    }
    const size_t row = each * sizeof(float);
    for (uint64_t i = 0; i < t->bytes / row; i++)
        memcpy(&to[i * each], from + (row_at ? row_at[i] : i) * row, row);
    t->data = to;
    t->in_memory = true;
    return to;
}

/* Subtracts the constant that was added to norms. */
int gguf_weights_undo_plus(struct gguf_weights *w, struct tensor *t, float plus, struct err *e)
{
    float *x = copy(w, t, NULL, 1, e);
    for (uint64_t i = 0; x && i < t->bytes / sizeof(*x); i++)
        x[i] -= plus;
    return x ? 0 : -1;
}

/* Decay rates are stored as `sign` exp(rate): a vector if `row_at` orders them. */
static int undo_exp(struct gguf_weights *w, struct tensor *t, const uint32_t *row_at, double sign,
                    struct err *e)
{
    if (row_at && t->n_dims != 1)
        return err_set(e, ERR_VALIDATION, "%s: tensor `%s` is no vector", t->file, t->name);
    float *x = copy(w, t, row_at, 1, e);
    for (uint64_t i = 0; x && i < t->bytes / sizeof(*x); i++) {
        if (!(sign * (double)x[i] > 0))
            return err_set(e, ERR_VALIDATION, "%s: tensor `%s`: a rate of %g does not decay",
                           t->file, t->name, (double)x[i]);
        x[i] = (float)log(sign * (double)x[i]);
    }
    return x ? 0 : -1;
}

/* Types that safetensors has as well keep their type. */
int gguf_weights_type(struct tensor *t, const struct gguf_tensor *g, struct err *e)
{
    t->packing = (int)g->packing;
    t->type = g->packing == GGUF_F32    ? T_F32
              : g->packing == GGUF_F16  ? T_F16
              : g->packing == GGUF_BF16 ? T_BF16
              : g->packing == GGUF_I32  ? T_I32
                                        : T_BLOCKS;
    if (t->type == T_BLOCKS && !block_readable(g->packing))
        return err_set(
            e, ERR_VALIDATION,
            "%s: tensor `%s` is packed as %s, which is not read here (read are F32, F16, "
            "BF16, Q1_0, Q2_0, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, IQ1_S to IQ4_XS, "
            "MXFP4, NVFP4, TQ1_0 and TQ2_0)",
            t->file, g->name, gguf_packings[g->packing].name);
    return 0;
}

/* Reorders rows or columns as in the family: of tables now, of matrices when they are read. */
int gguf_weights_order(struct gguf_weights *w, struct tensor *t, enum role role,
                       const struct gguf_shape *s, struct err *e)
{
    const bool table = t->n_dims != 2;
    const uint64_t cols = t->n_dims == 2 ? t->dims[1] : 1;
    struct gguf_order o;
    if (gguf_order_make(s, role, t->dims[0], cols, t->file, t->name, &o, e))
        return -1;
    if ((o.row_at && !gguf_weights_own(w, o.row_at)) ||
        (o.col_at && !gguf_weights_own(w, o.col_at)))
        return err_nomem(e);
    if (role == W_MIX_RATE)
        return undo_exp(w, t, o.row_at, s->family->rates_above_0 ? 1 : -1, e);
    if (!o.row_at && !o.col_at)
        return 0;
    if (table) /* gguf_order_make() refuses one without rows */
        // NOLINTNEXTLINE(clang-analyzer-core.DivideZero)
        return copy(w, t, o.row_at, t->bytes / sizeof(float) / t->dims[0], e) ? 0 : -1;
    t->type = T_BLOCKS;
    t->row_at = o.row_at;
    t->col_at = o.col_at;
    return 0;
}

/* One matrix of the rows of beta and of decay. */
static int add_beta_and_decay(struct gguf_weights *w, const struct arch *a,
                              const struct gguf_use *u, const struct gguf_shape *s, struct tensor t,
                              struct err *e)
{
    static const enum role roles[] = {W_MIX_BETA, W_MIX_DECAY};
    if (t.n_dims != 2 || t.dims[0] % 2)
        return err_set(e, ERR_VALIDATION, "%s: tensor `%s` is no matrix of pairs", t.file, t.name);
    t.dims[0] /= 2;
    for (int i = 0; i < 2; i++) {
        const struct gguf_use one = {roles[i], u->layer, u->suffix};
        struct tensor half = t;
        half.name = gguf_weights_spell(w, a, &one, 0);
        if (!half.name)
            return err_nomem(e);
        if (gguf_weights_order(w, &half, roles[i], s, e) || gguf_weights_add(w, &half, e))
            return -1;
    }
    return 0;
}

static void add_dim(struct tensor *t)
{
    t->n_dims = 2;
    t->dims[1] = t->dims[0], t->dims[0] = 1;
}

/* Restores dimensions of 1, which the format's writers omit. */
static void restore_shape(struct tensor *t, enum role r)
{
    if (r == W_SHARED_GATE_OUT && t->n_dims == 1) { /* [1, hidden] */
        add_dim(t);
    } else if (r == W_MIX_CONV && t->n_dims == 2) { /* [channels, 1, width] */
        t->n_dims = 3;
        t->dims[2] = t->dims[1], t->dims[1] = 1;
    } else if (gguf_whole_name(r) && t->n_dims == 2 &&
               t->dims[1] == 1) { /* [heads], which has one more dimension */
        t->n_dims = 1;
    }
}

struct gguf_source {
    const struct gguf *file;
    const struct gguf_family *family;
    struct gguf_shape shape;
    uint32_t layers;
};

/* True if it belongs to a layer after the model's own. */
static bool is_behind(const char *name, uint32_t layers)
{
    unsigned layer;
    return sscanf(name, "blk.%u.", &layer) == 1 && layer >= layers;
}

/* "blk.3.ffn_up.scale" is the factor of "blk.3.ffn_up.weight", or one per expert; ".input_scale"
 * is of activations. False: it is neither, or the family's own. */
static bool is_scale(const struct arch *a, const char *name)
{
    const char *dot = strrchr(name, '.');
    struct gguf_use u;
    return dot && (strcmp(dot, ".scale") == 0 || strcmp(dot, ".input_scale") == 0) &&
           !gguf_use_of(a, name, 0, &u);
}

/* Sets the scale of the packed tensors to which it belongs. */
static int take_scale(struct gguf_weights *w, const struct arch *a, const struct gguf_tensor *g,
                      const char *file, struct err *e)
{
    char name[NAME_BYTES];
    struct gguf_use u;
    const char *dot = strrchr(g->name, '.');
    uint64_t n = 1;
    for (int i = 0; i < g->n_dims; i++)
        n *= g->dims[i];
    if (snprintf(name, sizeof(name), "%.*s.weight", (int)(dot - g->name), g->name) >= NAME_BYTES ||
        !gguf_use_of(a, name, w->stack, &u) || g->packing != GGUF_F32 ||
        n != (has_experts(u.role) ? g->dims[0] : 1) || n > EXPERTS_MAX)
        return err_set(e, ERR_VALIDATION, "%s: tensor `%s` is no scale of a tensor of this model",
                       file, g->name);
    if (strcmp(dot, ".scale") != 0)
        return 0;
    for (uint64_t i = 0; i < n; i++) {
        const char *of = gguf_weights_spell(w, u.of ? u.of : a, &u, (unsigned)i);
        struct tensor *t = of ? (struct tensor *)gguf_weights_find(w, of) : NULL;
        if (!of)
            return err_nomem(e);
        if (!t || gguf_packings[t->packing].elements == 1)
            return err_set(e, ERR_VALIDATION, "%s: tensor `%s` is the scale of no packed tensor",
                           file, g->name);
        memcpy(&t->times, g->data + i * sizeof(float), sizeof(float));
        if (!isfinite(t->times) || t->times == 0)
            return err_set(e, ERR_VALIDATION, "%s: tensor `%s` has a scale of %g", file, g->name,
                           (double)t->times);
    }
    return 0;
}

/* "blk.3.attn_k_b.weight" with "blk.3.attn_v_b.weight"; the latter is ignored by itself. */
static int add_latent(struct gguf_weights *w, const struct arch *a, const struct gguf_use *u,
                      const struct gguf_tensor *g, struct tensor t, struct err *e)
{
    char name[NAME_BYTES];
    const bool keys = strstr(g->name, ".attn_k_b.") != NULL;
    snprintf(name, sizeof(name), "blk.%d.attn_%c_b.weight", u->layer, keys ? 'v' : 'k');
    const struct gguf_tensor *other = gguf_set_tensor(&w->set, name);
    if (!keys && other)
        return 0;
    if (gguf_latent_join(keys ? g : NULL, keys ? other : g, &t, e))
        return -1;
    if (!gguf_weights_own(w, (void *)(uintptr_t)t.data))
        return err_nomem(e);
    t.name = gguf_weights_spell(w, a, u, 0);
    return gguf_weights_add(w, &t, e);
}

static bool is_half_of_latent(const char *name)
{
    return strstr(name, ".attn_k_b.") || strstr(name, ".attn_v_b.");
}

/* If a layer has two norms before its branches (Falcon 40B), the second is attention's. */
static void tell_norms(const struct gguf_weights *w, const struct arch *a,
                       const struct gguf_tensor *g, struct gguf_use *u)
{
    char name[NAME_BYTES];
    if (u->role != W_ATTN_NORM || a->names[W_MIX_NORM] || strstr(g->name, ".attn_norm_2."))
        return;
    snprintf(name, sizeof(name), "blk.%d.attn_norm_2.weight", u->layer);
    if (gguf_set_tensor(&w->set, name))
        u->role = W_MLP_NORM;
}

/* What the converter added to the weights of a norm; 0: nothing, or it is none. */
static float plus_of(const struct gguf_family *f, enum role r)
{
    if (!is_norm(r) || (f->plain_end && r == W_FINAL_NORM) ||
        (f->plain_heads && (r == W_Q_NORM || r == W_K_NORM)))
        return 0;
    const float post = r == W_POST_ATTN_NORM  ? f->post_plus[0]
                       : r == W_POST_MLP_NORM ? f->post_plus[1]
                                              : 0;
    return post != 0 ? post : f->norm_plus;
}

static int add_one(struct gguf_weights *w, const struct arch *a, const struct gguf_source *s,
                   const struct gguf_use *u, struct tensor t, struct err *e)
{
    int rc;
    if (!(t.name = gguf_weights_spell(w, a, u, 0)))
        return err_nomem(e);
    restore_shape(&t, u->role);
    const float plus = plus_of(s->family, u->role);
    if (plus != 0)
        rc = t.n_dims == 1
                 ? gguf_weights_undo_plus(w, &t, plus, e)
                 : err_set(e, ERR_VALIDATION, "%s: tensor `%s` is no vector", t.file, t.name);
    else
        rc = gguf_weights_order(w, &t, u->role, &s->shape, e);
    return rc ? -1 : gguf_weights_add(w, &t, e);
}

static bool is_qk_norm(const char *name)
{
    return strstr(name, ".attn_q_norm.") || strstr(name, ".attn_k_norm.");
}

/* What follows the layers of an encoder keeps its name: text_head.c. */
static bool is_head(const char *name)
{
    return strncmp(name, "cls.", 4) == 0 || strncmp(name, "dense_", 6) == 0;
}

void gguf_weights_dims(struct tensor *t, const struct gguf_tensor *g)
{
    t->n_dims = g->n_dims ? g->n_dims : 1;
    for (int i = 0; i < t->n_dims; i++)
        t->dims[i] = g->dims[t->n_dims - 1 - i];
}

static int take(struct gguf_weights *w, const struct arch *a, const struct gguf_source *s,
                const struct gguf_tensor *g, struct err *e)
{
    struct gguf_use u;
    struct tensor t = {.name = g->name,
                       .file = s->file->path,
                       .begin = g->begin,
                       .bytes = g->bytes,
                       .data = g->data};
    gguf_weights_dims(&t, g);
    if (strncmp(g->name, "rope_", 5) == 0) /* config.json has them */
        return 0;
    if (s->family->plain_end && is_qk_norm(g->name)) /* so it does */
        return 0;
    if (is_behind(g->name, s->layers) || is_scale(a, g->name)) /* scales: after all tensors */
        return 0;
    if (s->family->pair && !a->encoder && strcmp(g->name, "output.weight") == 0) /* the decoder's */
        return 0;
    if (is_head(g->name)) {
        if (t.n_dims == 1 && strcmp(g->name, "cls.output.weight") == 0) /* one label */
            add_dim(&t);
        return gguf_weights_type(&t, g, e) ? -1 : gguf_weights_add(w, &t, e);
    }
    if (!gguf_use_of(a, g->name, w->stack, &u))
        return err_set(e, ERR_VALIDATION, "%s: tensor `%s` has no place in a model of `%s` here",
                       t.file, g->name, s->family->name);
    if (!u.of)
        return 0;
    a = u.of;
    if (is_half_of_latent(g->name))
        return add_latent(w, a, &u, g, t, e);
    if (gguf_weights_type(&t, g, e))
        return -1;
    tell_norms(w, a, g, &u);
    if (gguf_has_streams(u.role))
        return gguf_weights_add_experts(w, a, &u, g, t, e);
    if (has_experts(u.role) || u.role == W_MOE_GATE_UP)
        return strcmp(u.suffix, ".bias") == 0 ? gguf_weights_add_expert_biases(w, a, &u, g, t, e)
                                              : gguf_weights_add_experts(w, a, &u, g, t, e);
    if (u.role == W_MIX_BETA_DECAY)
        return add_beta_and_decay(w, a, &u, &s->shape, t, e);
    return add_one(w, a, s, &u, t, e);
}

/* Numbers of each layer that are metadata there, and tensors in a folder: as such. */
static int add_numbers(struct gguf_weights *w, const struct arch *a, const struct gguf_source *s,
                       struct err *e)
{
    static const struct {
        const char *key;
        enum role role;
    } lists[] = {{"xielu.alpha_p", W_XIELU_ABOVE}, {"xielu.alpha_n", W_XIELU_BELOW}};
    for (size_t k = 0; k < sizeof(lists) / sizeof(lists[0]); k++) {
        const struct gguf_value *list = gguf_numbers(&w->set.files[0], lists[k].key);
        if (!list || !a->names[lists[k].role])
            continue;
        for (uint64_t i = 0; i < list->n && i < s->layers; i++) {
            const struct gguf_use u = {lists[k].role, (int)i, "", a};
            struct tensor t = {.file = w->set.files[0].path,
                               .packing = GGUF_F32,
                               .type = T_F32,
                               .n_dims = 1,
                               .dims = {1},
                               .bytes = sizeof(float),
                               .in_memory = true};
            float *v = gguf_weights_own(w, malloc(sizeof(*v)));
            if (!v)
                return err_nomem(e);
            *v = (float)gguf_number_at(list, i);
            t.data = v;
            t.name = gguf_weights_spell(w, a, &u, 0);
            if (gguf_weights_add(w, &t, e))
                return -1;
        }
    }
    return 0;
}

/* ---------------------------------------------------------------- the file */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tensor *)a)->name, ((const struct tensor *)b)->name);
}

void gguf_weights_sort(struct gguf_weights *w)
{
    if (w->n)
        qsort(w->tensors, w->n, sizeof(w->tensors[0]), by_name);
}

static int open_set(struct gguf_weights *w, const char *path, const struct arch *a, struct err *e)
{
    if (gguf_set_open(&w->set, path, e))
        return -1;
    struct gguf_source s = {.family = gguf_family(&w->set, e)};
    if (!s.family)
        return -1;
    s.layers = gguf_layers(&w->set, s.family);
    s.shape = gguf_shape(&w->set, s.family);
    w->stack = (uint32_t)gguf_family_number(&w->set, s.family, "hrm.layers_per_stack");
    for (uint32_t f = 0; f < w->set.n; f++) {
        s.file = &w->set.files[f];
        for (uint32_t i = 0; i < s.file->n_tensors; i++)
            if (take(w, a, &s, &s.file->tensors[i], e))
                return -1;
    }
    if (add_numbers(w, a, &s, e))
        return -1;
    gguf_weights_sort(w);
    for (uint32_t f = 0; f < w->set.n; f++)
        for (uint32_t i = 0; i < w->set.files[f].n_tensors; i++) {
            const struct gguf_tensor *g = &w->set.files[f].tensors[i];
            if (is_scale(a, g->name) && !is_behind(g->name, s.layers) &&
                take_scale(w, a, g, w->set.files[f].path, e))
                return -1;
        }
    return 0;
}

int gguf_weights_open(struct gguf_weights *w, const char *path, const struct arch *a, struct err *e)
{
    *w = (struct gguf_weights){0};
    if (open_set(w, path, a, e) == 0)
        return 0;
    gguf_weights_close(w);
    return -1;
}

void gguf_weights_close(struct gguf_weights *w)
{
    while (w->n_owned)
        free(w->owned[--w->n_owned]);
    free(w->owned);
    free(w->tensors);
    gguf_set_close(&w->set);
    *w = (struct gguf_weights){0};
}

const char *gguf_weights_packing(const struct gguf_weights *w)
{
    uint64_t bytes[GGUF_N_PACKINGS] = {0};
    int most = GGUF_F32;
    for (uint32_t i = 0; i < w->n; i++)
        bytes[w->tensors[i].packing] += w->tensors[i].bytes;
    for (int i = 0; i < GGUF_N_PACKINGS; i++)
        most = bytes[i] > bytes[most] ? i : most;
    return gguf_packings[most].elements > 1 ? gguf_packings[most].name : NULL;
}

const struct tensor *gguf_weights_find(const struct gguf_weights *w, const char *name)
{
    const struct tensor key = {.name = name};
    return w->n ? bsearch(&key, w->tensors, w->n, sizeof(w->tensors[0]), by_name) : NULL;
}
