#include "model-server/model/gguf_weights.h"
#include "common/gguf/family.h"
#include "model-server/model/gguf_latent.h"
#include "model-server/model/quant/blocks.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 256, LAYERS_MAX = 100000, EXPERTS_MAX = 65536 };

/* What llama.cpp calls the tensors of a role. Where two roles share a name, it is that of the first
 * one that the family has. */
static const struct {
    const char *name;
    enum role role;
} names[] = {
    {"token_embd", W_EMBED},
    {"output_norm", W_FINAL_NORM},
    {"token_embd_norm", W_FINAL_NORM}, /* LFM2's name for it */
    {"output", W_HEAD},
    {"blk.*.attn_norm", W_ATTN_NORM},
    {"blk.*.post_attention_norm", W_POST_ATTN_NORM},
    {"blk.*.post_attention_norm", W_MLP_NORM},
    {"blk.*.ffn_norm", W_MLP_NORM},
    {"blk.*.post_ffw_norm", W_POST_MLP_NORM},
    {"blk.*.attn_qkv", W_QKV},
    {"blk.*.attn_q", W_Q},
    {"blk.*.attn_k", W_K},
    {"blk.*.attn_v", W_V},
    {"blk.*.attn_output", W_O},
    {"blk.*.attn_q_a", W_Q_A},
    {"blk.*.attn_q_a_norm", W_Q_A_NORM},
    {"blk.*.attn_q_b", W_Q_B},
    {"blk.*.attn_kv_a_mqa", W_KV_A},
    {"blk.*.attn_kv_a_norm", W_KV_A_NORM},
    {"blk.*.attn_kv_b", W_KV_B},
    {"blk.*.attn_k_b", W_KV_B}, /* in two: gguf_latent.c */
    {"blk.*.attn_v_b", W_KV_B},
    {"blk.*.attn_q_norm", W_Q_NORM},
    {"blk.*.attn_k_norm", W_K_NORM},
    {"blk.*.attn_sinks", W_SINKS},
    {"blk.*.ffn_gate", W_GATE},
    {"blk.*.ffn_up", W_UP},
    {"blk.*.ffn_up", W_GATE_UP},
    {"blk.*.ffn_down", W_DOWN},
    {"blk.*.ffn_gate_inp", W_ROUTER},
    {"blk.*.exp_probs_b", W_SELECT_BIAS},
    {"blk.*.ffn_gate_exps", W_MOE_GATE},
    {"blk.*.ffn_up_exps", W_MOE_UP},
    {"blk.*.ffn_down_exps", W_MOE_DOWN},
    {"blk.*.ffn_gate_shexp", W_SHARED_GATE},
    {"blk.*.ffn_up_shexp", W_SHARED_UP},
    {"blk.*.ffn_down_shexp", W_SHARED_DOWN},
    {"blk.*.ffn_gate_inp_shexp", W_SHARED_GATE_OUT},
    {"blk.*.shortconv.in_proj", W_MIX_IN},
    {"blk.*.shortconv.conv", W_MIX_CONV},
    {"blk.*.shortconv.out_proj", W_MIX_OUT},
};

static bool is_norm(enum role r)
{
    return r == W_FINAL_NORM || r == W_ATTN_NORM || r == W_POST_ATTN_NORM || r == W_MLP_NORM ||
           r == W_POST_MLP_NORM || r == W_Q_NORM || r == W_K_NORM;
}

static bool has_experts(enum role r) { return r == W_MOE_GATE || r == W_MOE_UP || r == W_MOE_DOWN; }

/* ---------------------------------------------------------------- names */

/* What a tensor is for: its role, its layer, and ".weight" or ".bias". */
struct use {
    enum role role;
    int layer;
    const char *suffix;
};

/* "blk.12.attn_q" is "blk.*.attn_q" of layer 12. */
static bool matches(const char *name, size_t n, const char *pattern, int *layer)
{
    const char *star = strchr(pattern, '*');
    size_t head = star ? (size_t)(star - pattern) : 0;
    *layer = 0;
    if (!star)
        return strlen(pattern) == n && memcmp(name, pattern, n) == 0;
    if (n <= head || memcmp(name, pattern, head) != 0 || name[head] < '0' || name[head] > '9')
        return false;
    const char *p = name + head;
    for (; p < name + n && *p >= '0' && *p <= '9' && *layer < LAYERS_MAX; p++)
        *layer = *layer * 10 + (*p - '0');
    size_t rest = strlen(star + 1);
    return *layer < LAYERS_MAX && (size_t)(name + n - p) == rest && memcmp(p, star + 1, rest) == 0;
}

static bool use_of(const struct arch *a, const char *name, struct use *u)
{
    const char *dot = strrchr(name, '.');
    if (!dot || (strcmp(dot, ".weight") != 0 && strcmp(dot, ".bias") != 0))
        return false;
    u->suffix = dot;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (a->names[names[i].role] &&
            matches(name, (size_t)(dot - name), names[i].name, &u->layer)) {
            u->role = names[i].role;
            if (u->role == W_SELECT_BIAS || u->role == W_SINKS) /* a name that is whole */
                u->suffix = "";
            return true;
        }
    return false;
}

/* Memory that goes with `w`; NULL: there is none. Takes `p` over in any case. */
static void *own(struct gguf_weights *w, void *p)
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

/* `spelling`, up to a | or its end, with the layer for the first * and the expert for the second.
 */
static const char *spelt(struct gguf_weights *w, const char *spelling, const struct use *u,
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
    return own(w, strdup(out));
}

/* Of several spellings the one with so many stars; else the last one. */
static const char *with_stars(const char *spelling, int stars)
{
    for (const char *p = spelling;; p = strchr(p, '|') + 1) {
        const char *end = strchr(p, '|');
        int n = 0;
        for (const char *q = p; *q && q != end; q++)
            n += *q == '*';
        if (n == stars || !end)
            return p;
    }
}

/* Where all experts may lie in one tensor, this is the name for each alone. */
static const char *name_for(struct gguf_weights *w, const struct arch *a, const struct use *u,
                            unsigned expert)
{
    return spelt(w, with_stars(a->names[u->role], has_experts(u->role) ? 2 : 1), u, expert);
}

static const char *name_for_all(struct gguf_weights *w, const struct arch *a, const struct use *u)
{
    return spelt(w, with_stars(a->names[u->role], 1), u, 0);
}

/* ---------------------------------------------------------------- tensors */

static int add(struct gguf_weights *w, const struct tensor *t, struct err *e)
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

/* Where row `row` of a head-by-head matrix lies, whose heads of `head` rows have their two halves
 * row by row in turn. */
static uint64_t paired_row(uint64_t row, uint64_t head)
{
    uint64_t i = row % head;
    return row - i + (i < head / 2 ? 2 * i : 2 * (i - head / 2) + 1);
}

/* A vector in fp32, as the family wants it: norms less what was added, biases in order. */
static int copy_vector(struct gguf_weights *w, struct tensor *t, float plus, uint32_t head,
                       struct err *e)
{
    const uint64_t n = t->dims[0];
    const uint8_t *from = t->data;
    if (t->type != T_F32)
        return err_set(e, ERR_VALIDATION, "%s: tensor `%s` has dtype %s; it must be F32", t->file,
                       t->name, tensor_type_name(t->type));
    float *to = own(w, malloc(t->bytes ? t->bytes : 1));
    if (!to)
        return err_nomem(e);
    for (uint64_t i = 0; i < n; i++) {
        memcpy(&to[i], from + (head ? paired_row(i, head) : i) * sizeof(float), sizeof(float));
        to[i] -= plus;
    }
    t->data = to;
    return 0;
}

/* Types that the format shares with safetensors stay themselves. */
static int set_type(struct tensor *t, const struct gguf_tensor *g, struct err *e)
{
    t->packing = (int)g->packing;
    t->type = g->packing == GGUF_F32    ? T_F32
              : g->packing == GGUF_F16  ? T_F16
              : g->packing == GGUF_BF16 ? T_BF16
                                        : T_BLOCKS;
    if (t->type == T_BLOCKS && !block_readable(g->packing))
        return err_set(
            e, ERR_VALIDATION,
            "%s: tensor `%s` is packed as %s, which is not read here (read are F32, F16, "
            "BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, IQ1_S to IQ4_XS, MXFP4, NVFP4, "
            "TQ1_0 "
            "and TQ2_0)",
            t->file, g->name, gguf_packings[g->packing].name);
    return 0;
}

static int reorder(struct gguf_weights *w, struct tensor *t, uint32_t head, struct err *e)
{
    if (head < 2 || head % 2 || t->dims[0] % head)
        return err_set(e, ERR_VALIDATION, "%s: tensor `%s`: %llu rows are no heads of %u", t->file,
                       t->name, (unsigned long long)t->dims[0], head);
    if (t->n_dims == 1)
        return copy_vector(w, t, 0, head, e);
    t->type = T_BLOCKS;
    t->paired = head;
    return 0;
}

/* The tensors of a layer's experts, which lie one behind the other. */
static int add_experts(struct gguf_weights *w, const struct arch *a, const struct use *u,
                       const struct gguf_tensor *g, struct tensor t, struct err *e)
{
    if (g->n_dims != 3 || g->dims[2] == 0 || g->dims[2] > EXPERTS_MAX)
        return err_set(e, ERR_VALIDATION, "%s: tensor `%s` has no three dimensions", t.file,
                       g->name);
    const uint64_t n = g->dims[2];
    t.n_dims = 2;
    t.dims[0] = g->dims[1], t.dims[1] = g->dims[0];
    t.bytes = g->bytes / n;
    for (uint64_t i = 0; i < n; i++) {
        t.name = name_for(w, a, u, (unsigned)i);
        t.begin = g->begin + i * t.bytes;
        t.data = g->data + i * t.bytes;
        if (add(w, &t, e))
            return -1;
    }
    return 0;
}

static struct tensor *added(struct gguf_weights *w, const char *name)
{
    for (uint32_t i = w->n; i-- > 0;) /* of the same layer: near the end */
        if (strcmp(w->tensors[i].name, name) == 0)
            return &w->tensors[i];
    return NULL;
}

/* The biases of a layer's experts, as gpt-oss has them: all in one tensor, [n, rows], in which
 * those of gate and up stand in turn. */
static int add_expert_biases(struct gguf_weights *w, const struct arch *a, const struct use *u,
                             const struct gguf_tensor *g, struct tensor t, struct err *e)
{
    const enum role to = u->role == W_MOE_DOWN ? W_MOE_DOWN : W_MOE_GATE_UP;
    const uint64_t turns = to == W_MOE_DOWN ? 1 : 2, at = u->role == W_MOE_UP;
    if (g->n_dims != 2 || g->packing != GGUF_F32 || !a->names[W_MOE_GATE_UP])
        return err_set(e, ERR_VALIDATION, "%s: tensor `%s` is no list of biases of this model",
                       t.file, g->name);
    const struct use all = {to, u->layer, "_bias"};
    if (!(t.name = name_for_all(w, a, &all)))
        return err_nomem(e);
    struct tensor *is = added(w, t.name);
    if (!is) {
        t.n_dims = 2;
        t.dims[0] = g->dims[1], t.dims[1] = turns * g->dims[0];
        t.bytes *= turns;
        if (!(t.data = own(w, calloc(1, t.bytes))) || add(w, &t, e))
            return err_nomem(e);
        is = &w->tensors[w->n - 1];
    }
    if (is->bytes != turns * g->bytes)
        return err_set(e, ERR_VALIDATION, "%s: tensor `%s` has another shape than its neighbour",
                       t.file, g->name);
    float *out = (float *)(uintptr_t)is->data;
    for (uint64_t i = 0; i < g->bytes / sizeof(float); i++)
        memcpy(&out[turns * i + at], g->data + i * sizeof(float), sizeof(float));
    return 0;
}

/* Dimensions of 1, which the format's writers leave out. */
static void restore_shape(struct tensor *t, enum role r)
{
    if (r == W_SHARED_GATE_OUT && t->n_dims == 1) { /* [1, hidden] */
        t->n_dims = 2;
        t->dims[1] = t->dims[0], t->dims[0] = 1;
    } else if (r == W_MIX_CONV && t->n_dims == 2) { /* [channels, 1, width] */
        t->n_dims = 3;
        t->dims[2] = t->dims[1], t->dims[1] = 1;
    }
}

struct gguf_source {
    const struct gguf *file;
    const struct gguf_family *family;
    uint32_t head; /* rows of one */
    uint32_t layers;
};

/* Is it of a layer behind the model's own? */
static bool is_behind(const char *name, uint32_t layers)
{
    unsigned layer;
    return sscanf(name, "blk.%u.", &layer) == 1 && layer >= layers;
}

/* "blk.3.ffn_up.scale" is what all of "blk.3.ffn_up.weight" is multiplied with, or each of its
 * experts; ".input_scale" is of activations. False: it is neither. */
static bool is_scale(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && (strcmp(dot, ".scale") == 0 || strcmp(dot, ".input_scale") == 0);
}

/* The packed tensors that a scale belongs to get it. */
static int take_scale(struct gguf_weights *w, const struct arch *a, const struct gguf_tensor *g,
                      const char *file, struct err *e)
{
    char name[NAME_BYTES];
    struct use u;
    const char *dot = strrchr(g->name, '.');
    uint64_t n = 1;
    for (int i = 0; i < g->n_dims; i++)
        n *= g->dims[i];
    if (snprintf(name, sizeof(name), "%.*s.weight", (int)(dot - g->name), g->name) >= NAME_BYTES ||
        !use_of(a, name, &u) || g->packing != GGUF_F32 ||
        n != (has_experts(u.role) ? g->dims[0] : 1) || n > EXPERTS_MAX)
        return err_set(e, ERR_VALIDATION, "%s: tensor `%s` is no scale of a tensor of this model",
                       file, g->name);
    if (strcmp(dot, ".scale") != 0)
        return 0;
    for (uint64_t i = 0; i < n; i++) {
        const char *of = name_for(w, a, &u, (unsigned)i);
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

/* "blk.3.attn_k_b.weight" with "blk.3.attn_v_b.weight"; the latter alone is nothing new. */
static int add_latent(struct gguf_weights *w, const struct arch *a, const struct use *u,
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
    if (!own(w, (void *)(uintptr_t)t.data))
        return err_nomem(e);
    t.name = name_for(w, a, u, 0);
    return add(w, &t, e);
}

static bool is_half_of_latent(const char *name)
{
    return strstr(name, ".attn_k_b.") || strstr(name, ".attn_v_b.");
}

static int take(struct gguf_weights *w, const struct arch *a, const struct gguf_source *s,
                const struct gguf_tensor *g, struct err *e)
{
    struct use u;
    struct tensor t = {
        .file = s->file->path, .begin = g->begin, .bytes = g->bytes, .data = g->data};
    if (strncmp(g->name, "rope_", 5) == 0) /* config.json has them */
        return 0;
    if (is_behind(g->name, s->layers) || is_scale(g->name)) /* scales: when all are there */
        return 0;
    if (!use_of(a, g->name, &u))
        return err_set(e, ERR_VALIDATION, "%s: tensor `%s` has no place in a model of `%s` here",
                       t.file, g->name, s->family->name);
    if (is_half_of_latent(g->name))
        return add_latent(w, a, &u, g, t, e);
    if (set_type(&t, g, e))
        return -1;
    if (has_experts(u.role))
        return strcmp(u.suffix, ".bias") == 0 ? add_expert_biases(w, a, &u, g, t, e)
                                              : add_experts(w, a, &u, g, t, e);
    t.name = name_for(w, a, &u, 0);
    t.n_dims = g->n_dims ? g->n_dims : 1;
    for (int i = 0; i < t.n_dims; i++)
        t.dims[i] = g->dims[t.n_dims - 1 - i];
    restore_shape(&t, u.role);
    int rc = 0;
    if (t.name && s->family->norm_plus != 0 && is_norm(u.role))
        rc = t.n_dims == 1
                 ? copy_vector(w, &t, s->family->norm_plus, 0, e)
                 : err_set(e, ERR_VALIDATION, "%s: tensor `%s` is no vector", t.file, g->name);
    else if (t.name && s->family->paired && (u.role == W_Q || u.role == W_K))
        rc = reorder(w, &t, s->head, e);
    return rc ? -1 : add(w, &t, e);
}

/* ---------------------------------------------------------------- the file */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tensor *)a)->name, ((const struct tensor *)b)->name);
}

static int open_set(struct gguf_weights *w, const char *path, const struct arch *a, struct err *e)
{
    if (gguf_set_open(&w->set, path, e))
        return -1;
    struct gguf_source s = {.family = gguf_family(&w->set, e)};
    if (!s.family)
        return -1;
    double head = gguf_head_size(&w->set, s.family);
    s.layers = gguf_layers(&w->set, s.family);
    s.head = head >= 1 && head <= ROPE_MAX_DIM ? (uint32_t)head : 0;
    for (uint32_t f = 0; f < w->set.n; f++) {
        s.file = &w->set.files[f];
        for (uint32_t i = 0; i < s.file->n_tensors; i++)
            if (take(w, a, &s, &s.file->tensors[i], e))
                return -1;
    }
    if (w->n)
        qsort(w->tensors, w->n, sizeof(w->tensors[0]), by_name);
    for (uint32_t f = 0; f < w->set.n; f++)
        for (uint32_t i = 0; i < w->set.files[f].n_tensors; i++) {
            const struct gguf_tensor *g = &w->set.files[f].tensors[i];
            if (is_scale(g->name) && !is_behind(g->name, s.layers) &&
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

const char *gguf_weights_name(enum role r)
{
    if (r == W_MLP_NORM) /* the other one is of families with that norm alone */
        return "blk.*.ffn_norm";
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (names[i].role == r)
            return names[i].name;
    return NULL;
}
