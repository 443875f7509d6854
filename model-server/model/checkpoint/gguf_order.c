#include "model-server/model/checkpoint/gguf_order.h"
#include <stdlib.h>

/* Position in the file of row or column i of the family's tensor. */
typedef uint32_t place_fn(const struct gguf_shape *s, enum role role, uint32_t i);

static uint32_t paired(const struct gguf_shape *s, enum role role, uint32_t i)
{
    const uint32_t in = i % s->head, half = s->head / 2;
    (void)role;
    return i - in + (in < half ? 2 * in : 2 * (in - half) + 1);
}

static uint32_t halved(const struct gguf_shape *s, enum role role, uint32_t i)
{
    const uint32_t in = i % s->head;
    (void)role;
    return in >= s->halved ? i : i - in + in % 2 * (s->halved / 2) + in / 2;
}

static uint32_t stacked(const struct gguf_shape *s, enum role role, uint32_t i)
{
    const uint32_t each = s->heads / s->kv_heads, h = i / s->head;
    const uint32_t group = h / (each + 2), in = h % (each + 2);
    const uint32_t to = in < each    ? group * each + in
                        : in == each ? s->heads + group
                                     : s->heads + s->kv_heads + group;
    (void)role;
    return to * s->head + i % s->head;
}

static uint32_t width(const struct gguf_shape *s, enum role role)
{
    return role == W_MIX_IN || role == W_MIX_CONV || role == W_MIX_Z || role == W_MIX_OUT
               ? s->value_dim
               : 1;
}

/* Rows before the values: queries and keys. */
static uint32_t before(const struct gguf_shape *s, enum role role)
{
    return role == W_MIX_IN || role == W_MIX_CONV ? 2 * s->keys * s->key_dim : 0;
}

static uint32_t tiled(const struct gguf_shape *s, enum role role, uint32_t i)
{
    const uint32_t first = before(s, role), n = width(s, role), each = s->values / s->keys;
    if (i < first)
        return i;
    const uint32_t h = (i - first) / n;
    return first + (h % each * s->keys + h / each) * n + i % n;
}

/* One matrix for both: for each key head its betas, then its decays. */
static uint32_t in_both(const struct gguf_shape *s, enum role role, uint32_t i)
{
    const uint32_t each = s->values / s->keys;
    return i / each * 2 * each + (role == W_MIX_DECAY ? each : 0) + i % each;
}

static bool is_tiled(enum role r)
{
    return r == W_MIX_IN || r == W_MIX_CONV || r == W_MIX_Z || r == W_MIX_BETA ||
           r == W_MIX_DECAY || r == W_MIX_RATE || r == W_MIX_DT || r == W_MIX_OUT;
}

/* The permutation of a role's tensors, and their required number of rows; NULL: none. */
static place_fn *move_of(const struct gguf_shape *s, enum role role, uint64_t n, uint64_t *all)
{
    const struct gguf_family *f = s->family;
    *all = 0;
    if (f->paired && (role == W_Q || role == W_K)) {
        *all = s->head >= 2 && s->head % 2 == 0 && n % s->head == 0 ? n : 0;
        return paired;
    }
    if (s->halved && (role == W_Q || role == W_K)) {
        *all = s->halved <= s->head && s->halved % 2 == 0 && n % s->head == 0 ? n : 0;
        return halved;
    }
    if (f->stacked && role == W_QKV) {
        if (s->kv_heads && s->heads % s->kv_heads == 0)
            *all = (s->heads + 2 * (uint64_t)s->kv_heads) * s->head;
        return stacked;
    }
    const bool both = f->beta_with_decay && (role == W_MIX_BETA || role == W_MIX_DECAY);
    if (!both && (!f->tiled || !is_tiled(role)))
        return NULL;
    if (s->keys && s->values % s->keys == 0)
        *all = before(s, role) + (uint64_t)s->values * width(s, role);
    return both ? in_both : tiled;
}

int gguf_order_make(const struct gguf_shape *s, enum role role, uint64_t rows, uint64_t cols,
                    const char *file, const char *name, struct gguf_order *o, struct err *e)
{
    const bool by_column = role == W_MIX_OUT && s->family->tiled;
    const uint64_t n = by_column ? cols : rows;
    uint64_t all;
    place_fn *at = move_of(s, role, n, &all);
    *o = (struct gguf_order){0};
    if (!at)
        return 0;
    if (n != all || n == 0 || n > UINT32_MAX / 2)
        return err_set(e, ERR_VALIDATION, "%s: tensor `%s`: %llu %s are not those of its heads",
                       file, name, (unsigned long long)n, by_column ? "columns" : "rows");
    uint32_t *list = malloc(n * sizeof(*list));
    if (!list)
        return err_nomem(e);
    for (uint32_t i = 0; i < n; i++)
        list[i] = at(s, role, i);
    *(by_column ? &o->col_at : &o->row_at) = list;
    return 0;
}

static uint32_t count(const struct gguf_set *s, const struct gguf_family *f, const char *key)
{
    const double v = gguf_family_number(s, f, key);
    return v >= 1 && v <= 1 << 20 ? (uint32_t)v : 0;
}

struct gguf_shape gguf_shape(const struct gguf_set *s, const struct gguf_family *f)
{
    const double head = gguf_head_size(s, f);
    struct gguf_shape x = {.family = f,
                           .heads = count(s, f, "attention.head_count"),
                           .kv_heads = count(s, f, "attention.head_count_kv"),
                           .head = head >= 1 && head <= ROPE_MAX_DIM ? (uint32_t)head : 0,
                           .values = count(s, f, "ssm.time_step_rank"),
                           .keys = count(s, f, "ssm.group_count"),
                           .key_dim = count(s, f, "ssm.state_size")};
    x.kv_heads = x.kv_heads ? x.kv_heads : x.heads;
    if (f->axes_halved && gguf_has_axes(s, f))
        x.halved = count(s, f, "rope.dimension_count");
    x.value_dim = x.values ? count(s, f, "ssm.inner_size") / x.values : 0;
    return x;
}
