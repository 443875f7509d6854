#include "model-server/model/lora/lora_place.h"
#include "model-server/model/lora/lora_recur.h"
#include <assert.h>

bool lora_is_latent(const struct lora_base *base, uint32_t layer)
{
    return base->spec->layers[layer].mixer == MIXER_MLA;
}

bool lora_has_entries(const struct lora_base *base, uint32_t layer)
{
    return base->spec->layers[layer].mixer == MIXER_ENTRIES;
}

/* ---------------------------------------------------------------- feed-forwards */

static bool is_shared(enum role r)
{
    return r == W_SHARED_GATE_UP || r == W_SHARED_GATE || r == W_SHARED_UP || r == W_SHARED_DOWN;
}

bool lora_is_mlp(enum role r)
{
    return r == W_GATE_UP || r == W_GATE || r == W_UP || r == W_DOWN || is_shared(r);
}

/* Width of the MLP of a matrix, this rank's part of it, and whether it has a gate. */
static uint32_t mlp_of(const struct lora_base *base, const struct lora_pair *p, struct slice *f,
                       bool *gated)
{
    const struct decoder_spec *s = base->spec;
    const bool shared = is_shared(p->role);
    *gated = shared ? !s->moe.plain : s->mlp != MLP_PLAIN;
    *f = shared ? base->split->shared_ffn : split_ffn(base->split, s, p->layer);
    return shared ? s->moe.shared_ffn : spec_ffn(s, p->layer);
}

static uint32_t most_of(uint32_t n, int world)
{
    return (n + (uint32_t)world - 1) / (uint32_t)world;
}

static void place_mlp(const struct lora_base *base, struct lora_pair *p, uint32_t *inputs,
                      uint32_t *outputs)
{
    struct slice f;
    bool gated;
    const int world = base->split->world;
    const uint32_t hidden = base->spec->hidden, ffn = mlp_of(base, p, &f, &gated);
    *inputs = p->columns = p->most_columns = hidden;
    switch (p->role) {
    case W_GATE_UP:
    case W_SHARED_GATE_UP:
        p->n = 2 * f.n;
        p->most_n = 2 * most_of(ffn, world);
        *outputs = 2 * ffn;
        break;
    case W_DOWN:
    case W_SHARED_DOWN: /* split by columns */
        p->n = p->most_n = *outputs = hidden;
        *inputs = ffn;
        p->column = f.first;
        p->columns = f.n;
        p->most_columns = most_of(ffn, world);
        break;
    default: /* a gate, or what goes up, alone */
        p->n = f.n;
        p->most_n = most_of(ffn, world);
        p->first = (p->role == W_UP || p->role == W_SHARED_UP) && gated ? f.n : 0;
        *outputs = ffn;
    }
}

static uint32_t row_of_mlp(const struct lora_pair *p, const struct lora_base *base, uint32_t i)
{
    struct slice f;
    bool gated;
    const uint32_t ffn = mlp_of(base, p, &f, &gated);
    switch (p->role) {
    case W_GATE_UP:
    case W_SHARED_GATE_UP:
        if (p->role == W_GATE_UP && base->spec->mlp == MLP_UP_PACKED)
            return i < f.n ? ffn + f.first + i : f.first + (i - f.n);
        return i < f.n ? f.first + i : ffn + f.first + (i - f.n);
    case W_DOWN:
    case W_SHARED_DOWN:
        return i;
    default:
        return f.first + i;
    }
}

/* ---------------------------------------------------------------- attention */

/* Part 0 q, 1 k, 2 v. */
static struct slice heads_of(const struct lora_base *base, uint32_t layer, int part)
{
    return part == 0 ? split_heads(base->split, base->spec, layer)
                     : split_kv_heads(base->split, base->spec, layer);
}

static uint32_t part_dim(const struct decoder_spec *s, uint32_t layer, int part)
{
    return part == 2 ? spec_v_dim(s, layer) : spec_head_dim(s, layer);
}

/* Rows on all ranks of W_Q .. W_V and of the whole. */
static uint32_t head_rows(const struct lora_base *base, uint32_t layer, int part)
{
    return heads_of(base, layer, part).n * part_dim(base->spec, layer, part);
}

/* Rows of a head in W_ATTN_GATE. */
static uint32_t gate_rows(const struct lora_base *base, uint32_t layer)
{
    const struct decoder_spec *s = base->spec;
    return attn_gate_by_head(s->attn_gate) ? 1
           : lora_is_latent(base, layer)   ? spec_mla(s, layer)->v
                                           : spec_v_dim(s, layer);
}

static uint32_t row_of_gate(const struct lora_pair *p, const struct lora_base *base, uint32_t i)
{
    return heads_of(base, p->layer, 0).first * gate_rows(base, p->layer) + i;
}

static void place_heads(const struct lora_base *base, struct lora_pair *p, uint32_t *inputs,
                        uint32_t *outputs)
{
    const struct decoder_spec *s = base->spec;
    const uint32_t q = head_rows(base, p->layer, 0), k = head_rows(base, p->layer, 1);
    const uint32_t v = head_rows(base, p->layer, 2), v_dim = spec_v_dim(s, p->layer);
    const uint32_t dim = spec_head_dim(s, p->layer), kv_heads = spec_kv_heads(s, p->layer);
    const uint32_t heads = spec_heads(s, p->layer);
    const struct slice own = heads_of(base, p->layer, 0);
    const bool both = p->role == W_K && s->layers[p->layer].k_is_v; /* k's matrix makes v too */
    *inputs = p->columns = p->most_columns = s->hidden;
    switch (p->role) {
    case W_QKV:
        p->n = p->most_n = q + k + v;
        *outputs = (heads + kv_heads) * dim + kv_heads * v_dim;
        break;
    case W_Q:
        p->n = p->most_n = q;
        *outputs = (s->attn_gate == ATTN_GATE_BESIDE_Q ? 2 * heads : heads) * dim;
        break;
    case W_K:
        p->n = p->most_n = both ? k + v : k;
        p->first = q;
        *outputs = kv_heads * dim;
        break;
    case W_V:
        p->n = p->most_n = v;
        p->first = q + k;
        *outputs = kv_heads * v_dim;
        break;
    case W_ATTN_GATE:
        p->n = p->most_n = own.n * gate_rows(base, p->layer);
        *outputs = heads * gate_rows(base, p->layer);
        break;
    default: /* W_O: split by columns */
        p->n = p->most_n = *outputs = s->hidden;
        *inputs = heads * v_dim;
        p->column = own.first * v_dim;
        p->columns = p->most_columns = own.n * v_dim;
    }
}

static uint32_t row_of_heads(const struct lora_pair *p, const struct lora_base *base, uint32_t i)
{
    int part = p->role == W_K ? 1 : p->role == W_V ? 2 : 0;
    switch (p->role) {
    case W_QKV:
        for (; part < 2 && i >= head_rows(base, p->layer, part); part++)
            i -= head_rows(base, p->layer, part);
        break;
    case W_K:
        i %= head_rows(base, p->layer, 1);
        break;
    case W_Q:
    case W_V:
        break;
    case W_ATTN_GATE:
        return row_of_gate(p, base, i);
    default:
        return i;
    }
    const uint32_t dim = part_dim(base->spec, p->layer, part);
    assert(dim);
    const uint32_t head = heads_of(base, p->layer, part).first + i / dim;
    return spec_qkv_row(base->spec, p->layer, part, head) + (p->site == LORA_Q_GATE ? dim : 0) +
           i % dim;
}

/* q's heads are in two matrices, and every rank has the latent. */
static void place_latent(const struct lora_base *base, struct lora_pair *p, uint32_t *inputs,
                         uint32_t *outputs)
{
    const struct decoder_spec *s = base->spec;
    const struct mla_spec *m = spec_mla(s, p->layer);
    const struct slice h = heads_of(base, p->layer, 0);
    const uint32_t heads = spec_heads(s, p->layer);
    *inputs = s->hidden;
    switch (p->role) {
    case W_Q_A:
        p->n = *outputs = m->q_rank;
        break;
    case W_KV_A:
        p->n = *outputs = m->kv_rank + m->rope;
        break;
    case W_O:
        *inputs = heads * m->v;
        p->n = *outputs = s->hidden;
        p->column = h.first * m->v;
        break;
    case W_ATTN_GATE:
        p->n = h.n * gate_rows(base, p->layer);
        *outputs = heads * gate_rows(base, p->layer);
        break;
    default: /* W_Q, W_Q_B */
        *inputs = p->role == W_Q ? s->hidden : m->q_rank;
        *outputs = heads * (m->nope + m->rope);
        p->n = h.n * (p->site == LORA_Q_ROPE ? m->rope : m->nope);
    }
    p->columns = p->role == W_O ? h.n * m->v : *inputs;
    p->most_columns = p->columns;
    p->most_n = p->n;
}

static uint32_t row_of_latent(const struct lora_pair *p, const struct lora_base *base, uint32_t i)
{
    const struct mla_spec *m = spec_mla(base->spec, p->layer);
    const uint32_t nope = m->nope, rope = m->rope;
    const bool turned = p->site == LORA_Q_ROPE;
    const uint32_t each = turned ? rope : nope;
    if (p->role == W_ATTN_GATE)
        return row_of_gate(p, base, i);
    if (p->role != W_Q && p->role != W_Q_B)
        return i;
    return (heads_of(base, p->layer, 0).first + i / each) * (nope + rope) + (turned ? nope : 0) +
           i % each;
}

/* Every rank has both latents; the last matrix reads the groups' results. */
static void place_entries(const struct lora_base *base, struct lora_pair *p, uint32_t *inputs,
                          uint32_t *outputs)
{
    const struct decoder_spec *s = base->spec;
    const struct entries_spec *m = &s->entries;
    const struct slice h = base->split->heads;
    const uint32_t per = s->n_heads / m->groups;
    *inputs = p->role == W_O ? m->groups * m->o_rank : p->role == W_Q_B ? m->q_rank : s->hidden;
    *outputs = p->role == W_O     ? s->hidden
               : p->role == W_Q_A ? m->q_rank
               : p->role == W_Q_B ? s->n_heads * s->head_dim
                                  : s->head_dim;
    p->n = p->role == W_Q_B ? h.n * s->head_dim : *outputs;
    p->column = p->role == W_O ? h.first / per * m->o_rank : 0;
    p->columns = p->role == W_O ? (h.n % per ? 1 : h.n / per) * m->o_rank : *inputs;
    p->most_columns = p->columns;
    p->most_n = p->n;
}

static uint32_t row_of_entries(const struct lora_pair *p, const struct lora_base *base, uint32_t i)
{
    return p->role == W_Q_B ? base->split->heads.first * base->spec->head_dim + i : i;
}

/* ---------------------------------------------------------------- kinds of sublayers */

static void place_embed(const struct lora_base *base, struct lora_pair *p, uint32_t *inputs,
                        uint32_t *outputs)
{
    *inputs = p->columns = p->most_columns = spec_inside_width(base->spec);
    *outputs = p->n = p->most_n = base->spec->hidden;
}

static uint32_t row_of_embed(const struct lora_pair *p, const struct lora_base *base, uint32_t i)
{
    (void)p, (void)base;
    return i;
}

enum kind { EMBEDDING, RECURRENT, FEED_FORWARD, LATENT, ENTRIES, HEADS };

static enum kind kind_of(const struct lora_base *base, const struct lora_pair *p)
{
    return p->site == LORA_EMBED                          ? EMBEDDING
           : lora_is_recur(base->spec, p->layer, p->role) ? RECURRENT
           : lora_is_mlp(p->role)                         ? FEED_FORWARD
           : lora_is_latent(base, p->layer)               ? LATENT
           : lora_has_entries(base, p->layer)             ? ENTRIES
                                                          : HEADS;
}

static const struct {
    void (*place)(const struct lora_base *base, struct lora_pair *p, uint32_t *inputs,
                  uint32_t *outputs);
    uint32_t (*row)(const struct lora_pair *p, const struct lora_base *base, uint32_t i);
} kinds[] = {
    [EMBEDDING] = {place_embed, row_of_embed},   [RECURRENT] = {lora_recur_place, lora_recur_row},
    [FEED_FORWARD] = {place_mlp, row_of_mlp},    [LATENT] = {place_latent, row_of_latent},
    [ENTRIES] = {place_entries, row_of_entries}, [HEADS] = {place_heads, row_of_heads},
};

void lora_place(const struct lora_base *base, struct lora_pair *p, uint32_t *inputs,
                uint32_t *outputs)
{
    kinds[kind_of(base, p)].place(base, p, inputs, outputs);
}

uint32_t lora_row_of_b(const struct lora_pair *p, const struct lora_base *base, uint32_t i)
{
    return kinds[kind_of(base, p)].row(p, base, i);
}
