/* experts.c - tensors that have all experts of a layer. */
#include "model-server/model/loader/loader_impl.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>

/* The tensors of one expert. */
struct expert_find {
    struct loader *l;
    uint64_t expert, n;
    int n_views;
};

/* A tensor of a quantised matrix for all experts: `experts.down_proj.weight_scale`, or in
 * transformers' files `experts.down_proj_scale`; of those with a dimension of experts the part of
 * one expert. */
static const struct tensor *find_of_expert(const void *ctx, const char *name)
{
    struct expert_find *x = (struct expert_find *)(uintptr_t)ctx;
    const struct tensor *t = loader_look(x->l, name);
    const char *weight = strstr(name, ".weight");
    char shorter[2 * NAME_MAX_LEN];
    if (!t && weight) {
        snprintf(shorter, sizeof(shorter), "%.*s%s", (int)(weight - name), name,
                 weight + strlen(".weight"));
        t = loader_look(x->l, shorter);
    }
    if (!t || t->n_dims < 1 || t->dims[0] != x->n)
        return t;
    assert(x->n_views < STORED_TENSORS);
    struct tensor *v = &x->l->views[x->l->n_stored][x->n_views++];
    *v = *t;
    v->n_dims--;
    memmove(v->dims, v->dims + 1, (size_t)v->n_dims * sizeof(v->dims[0]));
    v->bytes = t->bytes / x->n;
    v->data = (const char *)t->data + x->expert * v->bytes;
    return v;
}

static void drop_end(char *name, const char *end)
{
    const size_t n = strlen(name), k = strlen(end);
    if (n >= k && strcmp(name + n - k, end) == 0)
        name[n - k] = '\0';
}

/* Experts in one tensor of a role: see moe_spec.n_always. */
static uint32_t experts_of(const struct moe_spec *m, enum role role)
{
    const bool always = role >= W_SHARED_GATE && role <= W_SHARED_DOWN;
    return always || role == W_SHARED_TURNS ? m->n_always : m->n_experts - m->n_always;
}

/* The matrix of one expert if it is stored quantised. False: it is plain, or missing. With
 * `turned` it is stored transposed. */
static bool stored_expert(struct loader *l, enum role role, int layer, int expert, bool turned,
                          int64_t rows, int64_t cols, struct mat_part *out)
{
    char name[NAME_MAX_LEN];
    if (l->failed || !l->c || !l->how->format)
        return false;
    loader_name(l, role, layer, NO_EXPERT, "", name);
    const struct tensor *t = loader_look(l, name);
    if (t && loader_is_plain(t))
        return false;
    const char *codes = t ? ".weight" : l->how->format->suffix[STORED_CODES];
    if (!t)
        loader_name(l, role, layer, NO_EXPERT, codes, name);
    drop_end(name, codes);
    drop_end(name, ".weight"); /* of the role's own name */
    struct expert_find x = {l, (uint64_t)expert, experts_of(&l->d->spec.moe, role), 0};
    *out = loader_stored(l, name, turned ? cols : rows, turned ? rows : cols, find_of_expert, &x);
    if (!turned || l->failed)
        return true;
    loader_numbers(l, out);
    *out = loader_turned(*out);
    return true;
}

bool loader_switch_mlp(struct loader *l, enum role role, int layer, int expert, int64_t rows,
                       int64_t cols, struct mat_part *out)
{
    static const char *const names[][2] = {
        {".w1", ".gate_proj"}, {".w3", ".up_proj"}, {".w2", ".down_proj"}}; /* Mixtral's */
    char name[NAME_MAX_LEN], to[2 * NAME_MAX_LEN];
    loader_name(l, role, layer, expert, "", name);
    const char *at = strstr(name, ".experts."), *end = at ? strrchr(name, '.') : NULL;
    if (l->how->format != &stored_mlx || expert == NO_EXPERT || !end)
        return false;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(end, names[i][0]) == 0)
            end = names[i][1];
    const int n = snprintf(to, sizeof(to), "%.*s.switch_mlp%s", (int)(at - name), name, end);
    snprintf(to + n, sizeof(to) - (size_t)n, ".weight");
    if (!loader_look(l, to))
        return false;
    to[n] = '\0';
    struct expert_find x = {l, (uint64_t)expert, l->d->spec.moe.n_experts, 0};
    *out = loader_stored(l, to, rows, cols, find_of_expert, &x);
    return true;
}

static const struct tensor *fused_tensor(const struct loader *l, enum role role, int layer)
{
    char name[NAME_MAX_LEN];
    loader_name(l, role, layer, NO_EXPERT, "", name);
    return loader_look(l, name);
}

enum fused loader_fused(const struct loader *l, int layer)
{
    const struct decoder_spec *s = &l->d->spec;
    if (s->moe.layout == EXPERTS_INTERLEAVED)
        return loader_has(l, W_MOE_GATE, layer, 0) ? FUSED_NONE : FUSED_IN_FIRST;
    if (l->c && l->a->names[W_MOE_TURNS] && fused_tensor(l, W_MOE_TURNS, layer))
        return FUSED_TURNS;
    if (!l->c || !l->a->names[W_MOE_GATE_UP] || !fused_tensor(l, W_MOE_GATE_UP, layer))
        return FUSED_NONE;
    const uint32_t in = spec_expert_in(s);
    const bool square = s->moe.ffn == in; /* then the other one tells */
    const struct tensor *t = fused_tensor(l, square ? W_MOE_GATE_UP : W_MOE_DOWN, layer);
    const uint64_t cols = square ? in : s->moe.ffn;
    return t && t->n_dims == 3 && t->dims[2] != cols ? FUSED_IN_FIRST : FUSED_OUT_FIRST;
}

struct mat_part loader_expert(struct loader *l, enum role role, int layer, int expert,
                              enum fused how, int64_t rows, int64_t cols)
{
    const int64_t n = experts_of(&l->d->spec.moe, role);
    const bool by_rows = how != FUSED_IN_FIRST;
    const int64_t outer = by_rows ? rows : cols, inner = by_rows ? cols : rows;
    struct mat_part p = {0};
    char name[NAME_MAX_LEN], want[64];
    const bool turned = !by_rows && l->d->spec.moe.layout != EXPERTS_INTERLEAVED;
    if (stored_expert(l, role, layer, expert, turned, rows, cols, &p))
        return p;
    loader_name(l, role, layer, NO_EXPERT, "", name);
    if (!l->c)
        snprintf(name + strlen(name), sizeof(name) - strlen(name), ".%d", expert);
    const struct tensor *t = l->failed ? NULL : loader_find(l, name, rows, cols);
    if (!t || loader_type(l, t, &p.dtype))
        return p;
    /* transformers keeps rows for the experts without matrices, too */
    const uint64_t spare = t->n_dims == 3 ? t->dims[0] - (uint64_t)n : 1;
    if (l->c && ((spare && spare != l->d->spec.moe.n_zero) || t->dims[1] != (uint64_t)outer ||
                 t->dims[2] != (uint64_t)inner)) {
        snprintf(want, sizeof(want), "%lld, %lld, %lld", (long long)n, (long long)outer,
                 (long long)inner);
        l->failed = true;
        tensor_wrong_shape(t, want, l->e);
        return p;
    }
    p.data = loader_source(l, t, dtype_size(p.dtype));
    p.rows = rows, p.cols = cols;
    p.name = l->c ? t->name : NULL;
    if (l->c) {
        p.row_stride = by_rows ? cols : 1, p.col_stride = by_rows ? 1 : rows;
        return loader_part_at(p, (size_t)expert * (size_t)(rows * cols));
    }
    if (!p.data)
        p.source = SOURCE_RANDOM, p.random = &l->random[t - l->made];
    p.row_stride = cols, p.col_stride = 1;
    return p;
}

struct mat_part loader_expert_biases(struct loader *l, enum role role, int layer, int64_t rows)
{
    const int64_t n = l->d->spec.moe.n_experts;
    struct mat_part p = {.rows = n * rows, .cols = 1, .row_stride = 1, .col_stride = 1};
    char name[NAME_MAX_LEN];
    loader_name(l, role, layer, NO_EXPERT, "_bias", name);
    const struct tensor *t = l->failed ? NULL : loader_find(l, name, n * rows, 0);
    if (!t || loader_type(l, t, &p.dtype))
        return (struct mat_part){0};
    if (l->c && (t->n_dims != 2 || t->dims[0] != (uint64_t)n || t->dims[1] != (uint64_t)rows)) {
        loader_wrong_shape(l, t, n, rows);
        return (struct mat_part){0};
    }
    p.data = loader_source(l, t, dtype_size(p.dtype));
    return p;
}
