#include "model-server/model/lora/lora_recur.h"

/* Parts of a product on this rank, in order: `each` rows for each of n heads from `first`. */
struct part {
    uint32_t first, n, each;
    enum delta_part delta; /* MIXER_DELTA: which */
    uint32_t at;           /* other mixers: the row where head 0 begins */
    uint32_t stride;       /* from head to head; 0: `each` */
};
enum { MOST_PARTS = 5 };

/* The matrices that a delta layer with recur_spec.apart has instead of W_MIX_IN and W_MIX_OUT. */
static bool is_apart(enum role r) { return r == W_Q || r == W_K || r == W_V || r == W_O; }

bool lora_is_recur(const struct decoder_spec *s, uint32_t layer, enum role r)
{
    const enum mixer_kind m = s->layers[layer].mixer;
    if ((m == MIXER_DELTA || m == MIXER_RWKV) && is_apart(r))
        return true;
    return r == W_MIX_IN || r == W_MIX_Z || r == W_MIX_BETA || r == W_MIX_DECAY ||
           r == W_MIX_BETA_DECAY || r == W_MIX_OUT;
}

bool lora_recur_has(const struct decoder_spec *s, uint32_t layer, enum role r)
{
    const enum mixer_kind m = s->layers[layer].mixer;
    if (m == MIXER_DELTA && s->recur.apart)
        return is_apart(r) || r == W_MIX_BETA || (r == W_MIX_Z && !recur_z_pair(&s->recur)) ||
               (r == W_MIX_DECAY && !s->recur.gate_rank);
    if (m == MIXER_RWKV || is_apart(r))
        return m == MIXER_RWKV && is_apart(r);
    if (m == MIXER_DELTA && s->recur.joined)
        return r == W_MIX_OUT; /* PEFT's parts of that matrix have other names */
    if (m == MIXER_DELTA)
        return r == W_MIX_IN || r == W_MIX_OUT || s->recur.grouped == (r == W_MIX_BETA_DECAY);
    if (m == MIXER_GATED)
        return r == W_MIX_IN || r == W_MIX_Z || r == W_MIX_OUT;
    if (m == MIXER_SHARED && s->recur.step_rank)
        return false;
    return (m == MIXER_MAMBA || m == MIXER_MAMBA2 || m == MIXER_PAIR || m == MIXER_SHARED ||
            m == MIXER_CONV) &&
           (r == W_MIX_IN || r == W_MIX_OUT);
}

enum lora_site lora_recur_site(const struct decoder_spec *s, uint32_t layer, enum role r,
                               enum lora_site site)
{
    if (s->layers[layer].mixer != MIXER_RWKV || !is_apart(r))
        return site;
    return r == W_K ? LORA_MIX_KEYS : r == W_V ? LORA_MIX_VALUES : site;
}

static int delta_parts(const struct lora_base *b, enum role r, struct part p[MOST_PARTS])
{
    static const struct {
        enum role role;
        enum delta_part part;
        bool grouped; /* only then */
    } rows[] = {{W_Q, DELTA_Q, false},
                {W_K, DELTA_K, false},
                {W_V, DELTA_V, false},
                {W_MIX_IN, DELTA_Q, false},
                {W_MIX_IN, DELTA_K, false},
                {W_MIX_IN, DELTA_V, false},
                {W_MIX_IN, DELTA_Z, true},
                {W_MIX_Z, DELTA_Z, false},
                {W_MIX_BETA, DELTA_BETA, false},
                {W_MIX_DECAY, DELTA_DECAY, false},
                {W_MIX_BETA_DECAY, DELTA_BETA, false},
                {W_MIX_BETA_DECAY, DELTA_DECAY, false}};
    int n = 0;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].role != r || (rows[i].grouped && !b->spec->recur.grouped))
            continue;
        const struct slice h = rows[i].part <= DELTA_K ? b->split->mix_keys : b->split->mix_heads;
        p[n] = (struct part){.first = h.first,
                             .n = h.n,
                             .each = spec_delta_rows(&b->spec->recur, rows[i].part),
                             .delta = rows[i].part};
        n++;
    }
    return n;
}

/* z, x, B, C and the steps of Mamba-2; B, C and u of a short convolution. */
static int plain_parts(const struct lora_base *b, enum mixer_kind m, struct part p[MOST_PARTS])
{
    const struct recur_spec *r = &b->spec->recur;
    const struct slice h = b->split->mix_heads, g = b->split->mix_keys, c = b->split->channels;
    const uint32_t v = r->heads * r->value_dim, k = r->key_heads * r->key_dim, n = b->spec->hidden;
    if (m == MIXER_CONV) {
        for (uint32_t i = 0; i < 3; i++)
            p[i] = (struct part){.first = c.first, .n = c.n, .each = 1, .at = i * n};
        return 3;
    }
    p[0] = (struct part){.first = h.first, .n = h.n, .each = r->value_dim};
    p[1] = (struct part){.first = h.first, .n = h.n, .each = r->value_dim, .at = v};
    p[2] = (struct part){.first = g.first, .n = g.n, .each = r->key_dim, .at = 2 * v};
    p[3] = (struct part){.first = g.first, .n = g.n, .each = r->key_dim, .at = 2 * v + k};
    p[4] = (struct part){.first = h.first, .n = h.n, .each = 1, .at = 2 * v + 2 * k};
    return MOST_PARTS;
}

/* Channels, then their gates; by_head a head's gates stand before its channels. */
static int mamba_parts(const struct lora_base *b, struct part p[MOST_PARTS])
{
    const struct recur_spec *r = &b->spec->recur;
    const struct slice h = b->split->mix_heads;
    const uint32_t dim = r->value_dim, gates = r->by_head ? dim : r->heads * dim;
    for (uint32_t i = 0; i < 2; i++)
        p[i] = (struct part){.first = h.first,
                             .n = h.n,
                             .each = dim,
                             .at = (r->by_head ? !i : i) * gates,
                             .stride = r->by_head ? 2 * dim : dim};
    return 2;
}

static int parts_of(const struct lora_base *b, const struct lora_pair *pair,
                    struct part p[MOST_PARTS])
{
    const enum mixer_kind m = b->spec->layers[pair->layer].mixer;
    if (m == MIXER_MAMBA)
        return mamba_parts(b, p);
    if (m == MIXER_GATED || m == MIXER_RWKV) { /* values, or gates; any of three */
        const struct slice h = b->split->mix_heads;
        p[0] = (struct part){.first = h.first, .n = h.n, .each = b->spec->recur.value_dim};
        return 1;
    }
    return m == MIXER_DELTA ? delta_parts(b, pair->role, p) : plain_parts(b, m, p);
}

/* Rows of a matrix in the whole model. */
static uint32_t all_rows(const struct decoder_spec *s, enum mixer_kind m, enum role role)
{
    const struct recur_spec *r = &s->recur;
    const uint32_t v = r->heads * r->value_dim, k = r->key_heads * r->key_dim;
    if (m == MIXER_CONV)
        return 3 * s->hidden;
    if (m == MIXER_GATED || m == MIXER_RWKV)
        return v;
    if (m == MIXER_MAMBA)
        return 2 * v;
    if (m != MIXER_DELTA)
        return 2 * v + 2 * k + r->heads;
    switch (role) {
    case W_Q:
    case W_K:
        return k;
    case W_V:
    case W_MIX_Z:
        return v;
    case W_MIX_IN:
        return 2 * k + (r->grouped ? 2 : 1) * v;
    case W_MIX_BETA_DECAY:
        return 2 * r->heads;
    default: /* W_MIX_BETA, W_MIX_DECAY */
        return r->heads * (role == W_MIX_DECAY ? spec_delta_rows(r, DELTA_DECAY) : 1);
    }
}

/* By columns: those of the mixer's result on this rank. */
static void place_out(const struct lora_base *b, struct lora_pair *p, uint32_t *inputs)
{
    const struct slice h = b->split->mix_heads, c = b->split->channels;
    const uint32_t dv = b->spec->recur.value_dim, world = (uint32_t)b->split->world;
    const bool conv = b->spec->layers[p->layer].mixer == MIXER_CONV;
    *inputs = conv ? b->spec->hidden : b->spec->recur.heads * dv;
    p->column = conv ? c.first : h.first * dv;
    p->columns = conv ? c.n : h.n * dv;
    p->most_columns = (*inputs + world - 1) / world;
    p->n = p->most_n = b->spec->hidden;
}

void lora_recur_place(const struct lora_base *b, struct lora_pair *p, uint32_t *inputs,
                      uint32_t *outputs)
{
    struct part parts[MOST_PARTS];
    const enum mixer_kind m = b->spec->layers[p->layer].mixer;
    *outputs = b->spec->hidden;
    if (p->role == W_MIX_OUT || p->role == W_O) {
        place_out(b, p, inputs);
        return;
    }
    const struct slice h = b->split->mix_heads, g = b->split->mix_keys;
    const struct recur_spec *r = &b->spec->recur;
    *inputs = p->columns = p->most_columns = b->spec->hidden;
    *outputs = all_rows(b->spec, m, p->role);
    for (int i = parts_of(b, p, parts) - 1; i >= 0; i--)
        p->n += parts[i].n * parts[i].each;
    p->most_n =
        m == MIXER_CONV ? 3 * ((b->spec->hidden - 1) / (uint32_t)b->split->world + 1) : p->n;
    if (p->role == W_MIX_Z)
        p->first = (m == MIXER_GATED ? 0 : 2 * g.n * r->key_dim) + h.n * r->value_dim;
    if (m != MIXER_RWKV && (p->role == W_K || p->role == W_V))
        p->first = (p->role == W_K ? 1 : 2) * g.n * r->key_dim;
    if (p->role == W_MIX_DECAY)
        p->first = h.n;
}

uint32_t lora_recur_row(const struct lora_pair *p, const struct lora_base *b, uint32_t i)
{
    struct part parts[MOST_PARTS];
    const enum mixer_kind m = b->spec->layers[p->layer].mixer;
    if (p->role == W_MIX_OUT || p->role == W_O)
        return i;
    const int n = parts_of(b, p, parts);
    const struct part *at = parts;
    for (; at < parts + n - 1 && i >= at->n * at->each; at++)
        i -= at->n * at->each;
    const uint32_t head = at->first + i / at->each;
    const uint32_t stride = at->stride ? at->stride : at->each;
    const uint32_t row = m == MIXER_DELTA ? spec_delta_row(&b->spec->recur, at->delta, head)
                                          : at->at + head * stride;
    return row + i % at->each;
}
