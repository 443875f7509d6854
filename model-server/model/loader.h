/* loader.h - from the tensors of a checkpoint to matrices on the device.
 *
 * A tensor is found by its role, its type and shape are checked against the spec, parts of it are
 * cut out as strided views, and the backend packs them. The first fault is kept in `e`; from then
 * on every function does nothing and returns something harmless, so that a caller looks at `failed`
 * once. */
#ifndef MODEL_SERVER_MODEL_LOADER_H
#define MODEL_SERVER_MODEL_LOADER_H
#include "model-server/backend/random_tensor.h"
#include "model-server/model/decoder.h"
#include "model-server/model/quant/stored.h"

enum { NO_LAYER = -1, NO_EXPERT = -1, MAX_SOURCES = 4 };

struct loader {
    struct decoder *d;
    const struct arch *a;
    const struct checkpoint *c; /* NULL: random weights */
    const struct stored *how;   /* matrices may be kept quantised; with `c` */
    struct err *e;
    bool failed;
    /* What the matrix at hand is made of, until it is packed (at most q, k and v): tensors whose
     * pages are then let go, so that memory peaks at the packed weights and not at twice that; and
     * copies of those at odd addresses. */
    const struct tensor *tensors[MAX_SOURCES];
    void *copies[MAX_SOURCES];
    struct tensor made[MAX_SOURCES]; /* without a checkpoint: views of `copies`, or no data */
    struct random_tensor random[MAX_SOURCES]; /* and what they are made of */
    struct stored_matrix stored[MAX_SOURCES]; /* quantised ones, made numbers when packed */
    int n_stored;
    struct mat_codes codes[MAX_SOURCES]; /* of parts that are kept so, in the last of `copies` */
    int n_tensors, n_copies;
    int64_t began;       /* ns */
    int64_t reported_ns; /* when progress was last logged */
    uint64_t layers_before,
        least_layer;   /* bytes: of all before the layer at hand; of the smallest */
    bool hold;         /* loader_drop() waits: several matrices are packed of the same tensors */
    int first_layer;   /* that the names of `a` count from */
    int64_t rows_each; /* of the matrix at hand every row stands for so many; 0: for itself */
};

enum { LOADER_SAMPLE_ROWS = 64 }; /* of a matrix, where a load is only measured */

void loader_nomem(struct loader *l);
/* What the decoder takes grows by so much. */
void loader_count(struct decoder *d, uint64_t elements, uint64_t bytes);
/* For loader_pack(). Codes instead of numbers: of all parts (true), or of none. Numbers for the
 * parts that have none yet, in `dtype`, or for `quant` in fp32. */
bool loader_keep_codes(struct loader *l, struct mat_part *parts, int n);
void loader_make_numbers(struct loader *l, struct mat_part *parts, int n, enum dtype dtype,
                         enum quant quant);
/* After the last matrix. */
void loader_drop(struct loader *l);

/* The checkpoint has a head that is not its embedding, whatever config.json says of them. */
bool loader_own_head(const struct loader *l);

/* The checkpoint has the role's ".weight". */
bool loader_has(const struct loader *l, enum role role, int layer, int expert);
/* The whole matrix [rows, cols] of a role, or its bias [rows] as one column. Valid until packed. */
struct mat_part loader_part(struct loader *l, enum role role, int layer, int expert, bool bias,
                            int64_t rows, int64_t cols);
/* The matrix [rows, cols] whose whole name the role is; plain numbers. */
struct mat_part loader_plain_matrix(struct loader *l, enum role role, int layer, int64_t rows,
                                    int64_t cols);
/* The tensor of that role (its whole name, where `suffix` is "") with rows * cols elements in
 * whatever dimensions, as a matrix. Its type is a plain one. */
struct mat_part loader_table(struct loader *l, enum role role, int layer, const char *suffix,
                             int64_t rows, int64_t cols);
/* The same where the role's name has a second number. */
struct mat_part loader_table_of(struct loader *l, enum role role, int layer, int expert,
                                const char *suffix, int64_t rows, int64_t cols);
/* How tensors that hold all experts of a layer lie: each expert's matrix in columns or in rows.
 * EXPERTS_SEPARATE: FUSED_NONE where there are none, else what the shapes of W_MOE_GATE_UP [2 ffn,
 * hidden] and W_MOE_DOWN [hidden, ffn] say. */
enum fused { FUSED_NONE, FUSED_IN_FIRST, FUSED_OUT_FIRST };
enum fused loader_fused(const struct loader *l, int layer);
/* Out of such tensors: the matrix [rows, cols] of one expert; all biases, [n_experts * rows] as one
 * column. */
struct mat_part loader_expert(struct loader *l, enum role role, int layer, int expert,
                              enum fused how, int64_t rows, int64_t cols);
struct mat_part loader_expert_biases(struct loader *l, enum role role, int layer, int64_t rows);
/* Rows in turns: of the pairs [first, first + n) of rows the even ones, then the odd ones. */
void loader_turns(struct loader *l, struct mat_part p, uint32_t first, uint32_t n,
                  struct mat_part out[2]);
/* Rows [row, row + rows) and columns [col, col + cols) of a part. */
struct mat_part loader_cut(struct mat_part p, int64_t row, int64_t rows, int64_t col, int64_t cols);
struct mat_part loader_rows(struct mat_part p, uint32_t first, uint32_t n);

/* Plain numbers for a part that is stored quantised, so that any view of it can be packed. */
void loader_numbers(struct loader *l, struct mat_part *p);
/* The part the other way round: rows are columns. Of plain numbers. */
static inline struct mat_part loader_turned(struct mat_part p)
{
    const struct mat_part t = p;
    p.rows = t.cols, p.cols = t.rows;
    p.row_stride = t.col_stride, p.col_stride = t.row_stride;
    return p;
}
/* Parts stacked by rows, as a matrix of `dtype`; or, each of one column, as an fp32 vector with
 * `plus` added. Both end the validity of the parts. NULL after a fault. */
struct weight *loader_pack(struct loader *l, struct mat_part *parts, int n, enum dtype dtype,
                           enum quant quant);
float *loader_vector(struct loader *l, const struct mat_part *parts, int n, float plus);

/* The same of one part whose row r, and of a bias [n] whose element r, is multiplied by element r
 * of the vector whose whole name `scale` is: see decoder_spec.sub_scale. A matrix is of fp32 then.
 */
struct weight *loader_pack_scaled(struct loader *l, struct mat_part p, enum role scale, int layer,
                                  enum quant quant);
float *loader_scaled_bias(struct loader *l, enum role role, enum role scale, int layer, uint32_t n);

/* decoder_load.c: the norm [hidden] of a role; how the head is quantised where the layers are so.
 */
struct norm loader_norm(struct loader *l, enum role role, int layer);
enum quant loader_head_quant(enum quant q);

/* A whole vector [n]: the ".bias" of a role; the ".weight" of a norm, plus what the spec adds. */
float *loader_bias(struct loader *l, enum role role, int layer, uint32_t n);
float *loader_weight_vector(struct loader *l, enum role role, int layer, uint32_t n);
/* Elements `s` of such a weight [n]. */
float *loader_weight_slice(struct loader *l, enum role role, int layer, uint32_t n, struct slice s);
/* The weights of a norm that has none. */
float *loader_ones(struct loader *l, uint32_t n);
/* n numbers of the host's. */
float *loader_host_vector(struct loader *l, const float *x, uint32_t n);
/* The one number whose whole name the role is; not 0 unless something failed. */
float loader_number(struct loader *l, enum role role, int layer);
/* Bounds of the product of `n` matrices that share an input of `cols` numbers and have rows[i] of
 * the results; ERR_VALIDATION: theirs of the input differ. */
struct clip loader_clip(struct loader *l, const enum role *roles, const uint32_t *rows, int n,
                        int layer, uint32_t cols);
/* Elements `s` of the vector [n] whose whole name the role is. */
float *loader_plain_vector(struct loader *l, enum role role, int layer, uint32_t n, struct slice s);
#endif
