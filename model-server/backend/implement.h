/* implement.h - for backends: declarations of their functions, and their table, from one list. */
#ifndef MODEL_SERVER_BACKEND_IMPLEMENT_H
#define MODEL_SERVER_BACKEND_IMPLEMENT_H
#include "model-server/backend/backend.h"

/* Declares a backend's function with the signature that it has in struct backend_ops. */
#define BACKEND_OP(backend, op) __typeof__(*((struct backend_ops *)0)->op) backend##_##op
/* Operations that a backend for all models has. It declares them with BACKEND_OP(), and fills its
 * struct backend_ops, from this list. */
// clang-format off
#define BACKEND_OPS(X)                                                                         \
    X(weight_takes) X(weight_load) X(weight_free) X(weight_bytes) X(vector_load) X(kv_new)     \
    X(kv_free) X(kv_block_bytes) X(kv_copy) X(host_alloc) X(host_free) X(kv_read)              \
    X(kv_write) X(embed) X(embed_ngrams) X(give_rows) X(embed_pos) X(norm) X(add_norm)         \
    X(linear) X(row_squares) X(row_moments) X(sparsify) X(gate_rows) X(scale_heads) X(clip)    \
    X(lora) X(rope_kv) X(latent_kv) X(select_keys) X(pool_keys) X(turn) X(keep)                \
    X(linear_heads) X(attention) X(merge_attention) X(conv) X(conv_floats) X(recur)            \
    X(recur_floats) X(gate_norm) X(state_copy) X(act_mul) X(act) X(xielu) X(act_by) X(moe)     \
    X(altup) X(mix) X(match_rows) X(root_dots) X(beside) X(softmax) X(fourier) X(gather_out)   \
    X(logit_scale) X(blend) X(shorten)
// clang-format on
#endif
