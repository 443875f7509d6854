#include "model-server/quantize/gguf_mix.h"
#include "common/buf.h"
#include "common/text.h"
#include <string.h>
#include <strings.h>

static const struct gguf_mix mixes[] = {
    {"F32", 0, GGUF_F32},      {"F16", 1, GGUF_F16},      {"BF16", 32, GGUF_BF16},
    {"Q4_0", 2, GGUF_Q4_0},    {"Q4_1", 3, GGUF_Q4_1},    {"Q5_0", 8, GGUF_Q5_0},
    {"Q5_1", 9, GGUF_Q5_1},    {"Q8_0", 7, GGUF_Q8_0},    {"Q4_K_S", 14, GGUF_Q4_K},
    {"Q4_K_M", 15, GGUF_Q4_K}, {"Q5_K_S", 16, GGUF_Q5_K}, {"Q5_K_M", 17, GGUF_Q5_K},
    {"Q6_K", 18, GGUF_Q6_K},   {"MXFP4", 38, GGUF_MXFP4},
};
enum { N_MIXES = sizeof(mixes) / sizeof(mixes[0]) };

const struct gguf_mix *gguf_mix_find(const char *name, struct err *e)
{
    struct buf known = BUF_INIT;
    for (int i = 0; i < N_MIXES; i++)
        if (strcasecmp(mixes[i].name, name) == 0)
            return &mixes[i];
    for (int i = 0; i < N_MIXES; i++)
        buf_fmt(&known, "%s%s", i ? ", " : "", mixes[i].name);
    err_set(e, ERR_VALIDATION, "--method gguf:%.40s is not known (known: %s)", name,
            known.p ? known.p : "");
    buf_free(&known);
    return NULL;
}

bool gguf_mix_packs(const char *name, int n_dims)
{
    static const char *const not_these[] = {
        "_norm.weight",          "ffn_gate_inp.weight",  "ffn_gate_inp_shexp.weight",
        "shortconv.conv.weight", "position_embd.weight", "token_types.weight"};
    for (size_t i = 0; i < sizeof(not_these) / sizeof(not_these[0]); i++)
        if (ends_with(name, not_these[i]))
            return false;
    return n_dims >= 2 && ends_with(name, ".weight");
}

/* The first and the last eighth of the layers, and every third one between. */
static bool more_bits(uint32_t i, uint32_t n)
{
    return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
}

/* In a mix of K-types the type depends on the position. */
static enum gguf_packing by_place(const struct gguf_mix *m, const struct gguf_place *p)
{
    const bool q4 = m->usual == GGUF_Q4_K, medium = ends_with(m->name, "_M");
    const bool k = q4 || m->usual == GGUF_Q5_K;
    const bool more = more_bits(p->layer, p->layers);
    if (ends_with(p->name, "attn_v.weight")) {
        enum gguf_packing t = m->usual;
        if (k && medium && more)
            t = GGUF_Q6_K;
        else if (q4 && !medium && p->layer < 4)
            t = GGUF_Q5_K;
        if (p->layers == 80 && p->heads_of_kv == 8 &&
            t == GGUF_Q4_K) /* of a 70B: small, and sensitive */
            t = GGUF_Q5_K;
        return p->experts == 8 && k ? GGUF_Q8_0 : t;
    }
    if (ends_with(p->name, "attn_k.weight") && p->experts == 8 && k)
        return GGUF_Q8_0;
    if (ends_with(p->name, "attn_output.weight") && p->experts == 8 && q4)
        return GGUF_Q5_K;
    if (ends_with(p->name, "attn_qkv.weight") && k && medium)
        return q4 ? GGUF_Q5_K : GGUF_Q6_K;
    if (ends_with(p->name, "ffn_down.weight") || ends_with(p->name, "ffn_down_exps.weight")) {
        if (k && medium && more)
            return GGUF_Q6_K;
        if (q4 && !medium && p->layer < p->layers / 8)
            return GGUF_Q5_K;
        if (p->weighted && p->layer < p->layers / 8)
            return m->usual == GGUF_Q4_0 ? GGUF_Q4_1 : m->usual == GGUF_Q5_0 ? GGUF_Q5_1 : m->usual;
    }
    return m->usual;
}

enum gguf_packing gguf_mix_type(const struct gguf_mix *m, const struct gguf_place *p)
{
    const bool plain = m->usual == GGUF_F32 || m->usual == GGUF_F16 || m->usual == GGUF_BF16;
    const bool head = strcmp(p->name, "output.weight") == 0 ||
                      (p->tied && strcmp(p->name, "token_embd.weight") == 0);
    enum gguf_packing t = plain ? m->usual : head ? GGUF_Q6_K : by_place(m, p);
    if (head && (m->usual == GGUF_Q8_0 || m->usual == GGUF_MXFP4 || p->cols % 256) && !plain)
        t = GGUF_Q8_0;
    if (p->cols % gguf_packings[t].elements)
        t = t == GGUF_Q4_K   ? GGUF_Q5_0
            : t == GGUF_Q5_K ? GGUF_Q5_1
            : t == GGUF_Q6_K ? GGUF_Q8_0
                             : t;
    return p->cols % gguf_packings[t].elements ? GGUF_F16 : t;
}
