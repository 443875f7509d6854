/* gguf_order.h - the permutation of rows or columns between a family's tensor and the GGUF tensor.
 *
 * llama.cpp's converters permute the rows of heads for its kernels:
 *   paired   q and k: the halves of a head that rotate together lie row by row in turn
 *   halved   q and k: the other way round, of the elements that rotate
 *   stacked  one matrix of q, k and v: all heads of q, all of k, all of v, where the family's has
 *            those of a key-value head side by side
 *   tiled    value heads of the gated delta rule: the first of each key head, the second of each,
 *            and so on, where the family's has those of a key head side by side */
#ifndef MODEL_SERVER_MODEL_CHECKPOINT_GGUF_ORDER_H
#define MODEL_SERVER_MODEL_CHECKPOINT_GGUF_ORDER_H
#include "common/gguf/family.h"
#include "model-server/model/arch.h"

struct gguf_shape {
    const struct gguf_family *family;
    uint32_t heads, kv_heads, head;            /* of attention; number of elements of a head */
    uint32_t halved;                           /* elements of a head that rotate; 0: as they are */
    uint32_t values, keys, value_dim, key_dim; /* heads of recurrent layers; their elements */
};
struct gguf_shape gguf_shape(const struct gguf_set *s, const struct gguf_family *f);

/* Row or column i of the family's tensor is number row_at[i], col_at[i] of the file's; NULL: same
 * order. The caller frees both. `rows` and `cols` are the family's tensor's; cols is 1 for a
 * vector. ERR_VALIDATION, with `file` and `name`: the sizes do not match the heads. */
struct gguf_order {
    uint32_t *row_at, *col_at;
};
int gguf_order_make(const struct gguf_shape *s, enum role role, uint64_t rows, uint64_t cols,
                    const char *file, const char *name, struct gguf_order *o, struct err *e);
#endif
