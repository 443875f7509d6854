/* decoder_spec.c - rows of q, k and v in the matrices of checkpoints. */
#include "model-server/model/spec/decoder_spec.h"

uint32_t spec_qkv_row(const struct decoder_spec *s, uint32_t layer, int part, uint32_t head)
{
    const uint32_t kv_heads = spec_kv_heads(s, layer), heads = spec_heads(s, layer);
    uint32_t g = heads / kv_heads, row = head;
    if (s->qkv == QKV_TURNS) {
        const uint32_t dim = spec_head_dim(s, layer), v_dim = spec_v_dim(s, layer);
        const uint32_t q = heads / s->qkv_turns, kv = kv_heads / s->qkv_turns;
        const uint32_t each = part ? kv : q, at = part == 0 ? 0 : part == 1 ? q : q + kv;
        return head / each * ((q + kv) * dim + kv * v_dim) + at * dim +
               head % each * (part == 2 ? v_dim : dim);
    }
    if (s->qkv == QKV_STACKED || s->qkv == QKV_GATE_FIRST)
        row = (s->qkv == QKV_GATE_FIRST ? heads : 0) + head + (part > 0 ? heads : 0) +
              (part > 1 ? kv_heads : 0);
    else if (s->qkv == QKV_GROUPED)
        row = part == 0 ? head / g * (g + 2) + head % g : head * (g + 2) + g + (uint32_t)part - 1;
    else if (s->qkv == QKV_QUARTERS) {
        g = heads / 4;
        row = head / g * 3 * g + (part ? 3 - (uint32_t)part : 0) * g + head % g;
    }
    return row * (part == 2 ? spec_v_dim(s, layer) : spec_head_dim(s, layer)) *
           (s->attn_gate == ATTN_GATE_BESIDE_Q && part == 0 ? 2 : 1);
}
