/* loader.h - loads tensors of a checkpoint as matrices on the device.
 *
 * A tensor is found by its role, its type and shape are checked against the spec, parts of it are
 * cut out as strided views, and the backend packs them. The first error is recorded in `e`. From
 * then on every function does nothing and returns something harmless, so a caller checks `failed`
 * once. */
#ifndef MODEL_SERVER_MODEL_LOADER_H
#define MODEL_SERVER_MODEL_LOADER_H
#include "model-server/backend/random_tensor.h"
#include "model-server/model/checkpoint/quant/stored.h"
#include "model-server/model/decoder.h"

enum { NO_LAYER = -1, NO_EXPERT = -1, MAX_SOURCES = 4 };

struct loader {
    struct decoder *d;
    const struct arch *a;
    const struct checkpoint *c; /* NULL: random weights */
    const struct stored *how;   /* quantised matrices of the checkpoint; with `c` */
    struct err *e;
    bool failed;
    /* Sources of the current matrix until it is packed (at most q, k and v): tensors whose pages
     * are released then, so that peak memory is that of the packed weights and not twice that;
     * and copies of misaligned ones. */
    const struct tensor *tensors[MAX_SOURCES];
    void *copies[2 * MAX_SOURCES];   /* of a tensor, and of its groups as a whole matrix */
    struct tensor made[MAX_SOURCES]; /* without a checkpoint: views of `copies`, or no data */
    struct random_tensor random[MAX_SOURCES]; /* and their random numbers */
    struct stored_matrix stored[MAX_SOURCES]; /* quantised parts, dequantised when packed */
    /* of their tensors, where one has several matrices: the part of this one */
    struct tensor views[MAX_SOURCES][STORED_TENSORS];
    int n_stored;
    struct mat_codes *codes; /* of the current matrix's parts, if they stay packed */
    int n_codes;
    int n_tensors, n_copies;
    int64_t began;       /* ns */
    int64_t reported_ns; /* when progress was last logged */
    /* bytes: of all layers before the current one; of the smallest */
    uint64_t layers_before, least_layer;
    bool hold; /* loader_drop() is deferred: several matrices are packed from the same tensors */
    uint32_t turns;    /* of the matrices that are found now: stored.turns */
    int first_layer;   /* number of the first layer in the names of `a` */
    bool paired;       /* two layers have one number there: decoder_spec's */
    void *zeros;       /* a row of them, with decoder_spec.head_pad and a checkpoint */
    int64_t rows_each; /* with measurements: rows of the matrix that each packed row stands for; 0:
                          one */
};

enum { LOADER_SAMPLE_ROWS = 64 }; /* rows of a matrix to pack, if a load is only measured */

/* The load has failed for lack of memory. */
void loader_nomem(struct loader *l);
/* Adds to the counted size of the decoder. */
void loader_count(struct decoder *d, uint64_t elements, uint64_t bytes);
/* For loader_pack(). Converts to codes instead of numbers: all parts (true), which are valid until
 * loader_free_codes(), or none. Dequantises the parts without numbers, to `dtype`, or for `quant`
 * to fp32. */
bool loader_keep_codes(struct loader *l, struct mat_part *parts, int n);
void loader_free_codes(struct loader *l);
void loader_make_numbers(struct loader *l, struct mat_part *parts, int n, enum dtype dtype,
                         enum quant quant);
/* Bits to which a head in 16 bits is rounded when it is packed; 0: it is not. It is rounded where
 * products of the layers round activations to 8 bits: to 8 beside layers that the checkpoint has
 * packed, to 6 beside those of --quantize int4. In GGUF files it keeps the type that was chosen for
 * it. `role`: of the head. */
uint32_t loader_head_bits(const struct loader *l, enum role role);
/* Makes parts in 16 bits, of whole rows, such matrices. */
void loader_round(struct loader *l, struct mat_part *parts, int n, uint32_t bits);
/* After the last matrix. */
void loader_drop(struct loader *l);

/* True if the checkpoint has a head that differs from its embedding, whatever config.json
 * says. */
bool loader_own_head(const struct loader *l);

/* True if the checkpoint has the role's ".weight". */
bool loader_has(const struct loader *l, enum role role, int layer, int expert);
/* The same for the role's whole name. */
bool loader_has_named(const struct loader *l, enum role role, int layer);
/* Rows of the role's ".weight", 0 if there is none. */
uint64_t loader_height(const struct loader *l, enum role role, int layer);
/* Counts the tensors of all spellings of the role's whole name as found (unused.h). */
void loader_found_all(const struct loader *l, enum role role);
/* The whole matrix [rows, cols] of a role, or its bias [rows] as one column. Valid until
 * packed. */
struct mat_part loader_part(struct loader *l, enum role role, int layer, int expert, bool bias,
                            int64_t rows, int64_t cols);
/* The matrix [rows, cols] of a role with a whole name; plain numbers. */
struct mat_part loader_plain_matrix(struct loader *l, enum role role, int layer, int64_t rows,
                                    int64_t cols);
/* The tensor of a role (its whole name if `suffix` is "") with rows * cols elements in any
 * dimensions, as a matrix of plain numbers. */
struct mat_part loader_table(struct loader *l, enum role role, int layer, const char *suffix,
                             int64_t rows, int64_t cols);
/* The same where the role's name has a second number. */
struct mat_part loader_table_of(struct loader *l, enum role role, int layer, int expert,
                                const char *suffix, int64_t rows, int64_t cols);
/* The numbers of such a tensor in fp32, [rows][cols]; the caller frees them. NULL after an error.
 */
float *loader_floats(struct loader *l, enum role role, int layer, int expert, const char *suffix,
                     int64_t rows, int64_t cols);
/* Layout of tensors that hold all experts of a layer: each expert's matrix by columns or by rows.
 * EXPERTS_SEPARATE: FUSED_NONE if there are none, else by the shapes of W_MOE_GATE_UP [2 ffn,
 * hidden] and W_MOE_DOWN [hidden, ffn]. */
/* FUSED_TURNS: by rows, W_MOE_TURNS, W_SHARED_TURNS. */
enum fused { FUSED_NONE, FUSED_IN_FIRST, FUSED_OUT_FIRST, FUSED_TURNS };
enum fused loader_fused(const struct loader *l, int layer);
/* From such tensors: the matrix [rows, cols] of one expert; all biases, [n_experts * rows] as one
 * column. */
struct mat_part loader_expert(struct loader *l, enum role role, int layer, int expert,
                              enum fused how, int64_t rows, int64_t cols);
struct mat_part loader_expert_biases(struct loader *l, enum role role, int layer, int64_t rows);
/* Deinterleaves rows: of the pairs [first, first + n) of rows the even ones, then the odd
 * ones. */
void loader_turns(struct loader *l, struct mat_part p, uint32_t first, uint32_t n,
                  struct mat_part out[2]);
/* Rows [row, row + rows) and columns [col, col + cols) of a part. */
struct mat_part loader_cut(struct mat_part p, int64_t row, int64_t rows, int64_t col, int64_t cols);
struct mat_part loader_rows(struct mat_part p, uint32_t first, uint32_t n);

/* Dequantises a part that is stored quantised, so that any view of it can be packed. */
void loader_numbers(struct loader *l, struct mat_part *p);
/* The transposed part, of plain numbers. */
static inline struct mat_part loader_turned(struct mat_part p)
{
    const struct mat_part t = p;
    p.rows = t.cols, p.cols = t.rows;
    p.row_stride = t.col_stride, p.col_stride = t.row_stride;
    return p;
}
/* Packs rows `want` of the table [rows, cols] of a role with a whole name, whose rows are in
 * tensors one after the other: the name's second number is theirs, from 0 on. Plain numbers. NULL
 * after an error. */
struct weight *loader_pack_shards(struct loader *l, enum role role, int layer, int64_t rows,
                                  uint32_t cols, struct slice want);
/* Packs parts stacked by rows, as a matrix of `dtype`; or, each of one column, as an fp32 vector
 * with `plus` added. The parts are invalid afterwards. NULL after an error. */
struct weight *loader_pack(struct loader *l, struct mat_part *parts, int n, enum dtype dtype,
                           enum quant quant);
float *loader_vector(struct loader *l, const struct mat_part *parts, int n, float plus);

/* The same for one part, or for a bias [n]. Row or element r is multiplied by element r of
 * the vector with the whole name `scale`: see decoder_spec.sub_scale. A matrix is fp32
 * then. */
struct weight *loader_pack_scaled(struct loader *l, struct mat_part p, enum role scale, int layer,
                                  enum quant quant);
float *loader_scaled_bias(struct loader *l, enum role role, enum role scale, int layer, uint32_t n);

/* Elements `s` of the vector [n] with a whole name, times `by`, and then squared. */
float *loader_factors(struct loader *l, enum role role, int layer, uint32_t n, struct slice s,
                      float by, bool squared);

/* decoder/load.c: the norm [hidden] of a role; the scheme of the head if the layers are
 * quantised. */
struct norm loader_norm(struct loader *l, enum role role, int layer);
/* The norm of the stream after `n` terms, counted from the embedding: decoder_spec.stream_mean. */
struct norm loader_stream_norm(struct loader *l, enum role role, int layer, uint32_t n);
enum quant loader_head_quant(enum quant q);

/* A whole vector [n]: the ".bias" of a role; the ".weight" of a norm, plus the spec's
 * constant. */
float *loader_bias(struct loader *l, enum role role, int layer, uint32_t n);
float *loader_weight_vector(struct loader *l, enum role role, int layer, uint32_t n);
/* The same with another constant. */
float *loader_norm_vector(struct loader *l, enum role role, int layer, uint32_t n, float plus);
/* Elements `s` of such a weight [n]. */
float *loader_weight_slice(struct loader *l, enum role role, int layer, uint32_t n, struct slice s);
/* n equal numbers; weights of a norm without stored weights. */
float *loader_constants(struct loader *l, uint32_t n, float value);
static inline float *loader_ones(struct loader *l, uint32_t n) { return loader_constants(l, n, 1); }
/* n numbers of the host's, or a matrix of them in fp32. NULL after an error. */
float *loader_host_vector(struct loader *l, const float *x, uint32_t n);
struct weight *loader_host_matrix(struct loader *l, const float *x, int64_t rows, int64_t cols);
/* n numbers of the host's, on the device; the caller frees them. NULL after an error. */
uint32_t *loader_host_numbers(struct loader *l, const uint32_t *x, size_t n);
/* The integers [rows][n] of a role with a whole name, on the device: the `n` of a row differ, and
 * are below `most`. The caller frees it. NULL after an error. */
uint32_t *loader_ids(struct loader *l, enum role role, int layer, uint32_t rows, uint32_t n,
                     uint32_t most);
/* The tensor with the role's whole name. NULL after an error, and without a checkpoint. */
const struct tensor *loader_tensor(struct loader *l, enum role role, int layer);
/* The number with the role's whole name; not 0 unless something failed. */
float loader_number(struct loader *l, enum role role, int layer);
/* Bounds of the product of `n` matrices that share an input of `cols` numbers and have rows[i]
 * results each. ERR_VALIDATION: their bounds of the input differ. */
struct clip loader_clip(struct loader *l, const enum role *roles, const uint32_t *rows, int n,
                        int layer, uint32_t cols);
/* Elements `s` of the vector [n] with the role's whole name. */
float *loader_plain_vector(struct loader *l, enum role role, int layer, uint32_t n, struct slice s);
#endif
