/* cpu.h - private to this folder and the tests of its kernels: the device, packed weights, the KV
 * cache. */
#ifndef MODEL_SERVER_BACKEND_CPU_CPU_H
#define MODEL_SERVER_BACKEND_CPU_CPU_H
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/implement.h"
#include "model-server/backend/threads.h"

/* Scratch memory of the device, one region per use, so that an operation may call another. */
enum scratch {
    SCRATCH_PACK,
    SCRATCH_MOE,
    SCRATCH_ATTN,
    SCRATCH_LORA,
    SCRATCH_ORDER,
    SCRATCH_TOP,
    SCRATCH_N
};

/* Products of attention; all 0: fp32 on vectors. */
struct kv_products {
    uint8_t squares; /* of bfloat16 on matrix units: parts of q and of the weights */
    bool pairs;      /* of bfloat16: q and the weights are rounded to it */
    bool quads;      /* of int4: q and the weights are rounded to 8 bits (kv_quads.h) */
};

struct device {
    struct pool *pool;
    struct kernels kern;
    unsigned features;
    bool half;                  /* of bfloat16 weights, see struct weight */
    uint8_t squares;            /* the same */
    struct kv_products kv[2];   /* [kv_desc.rounds] */
    bool half_f16;              /* of float16 weights */
    bool squares_i8;            /* of 8-bit weights and activations */
    bool squares_codes;         /* of codes and 8-bit activations */
    const struct ragged *batch; /* between step_begin() and step_end() */
    struct {
        void *p;
        size_t bytes;
    } scratch[SCRATCH_N];
    char *thread_scratch; /* THREAD_MEMORY bytes per thread */
    struct err fault;     /* error of an operation that cannot return one; step_end() returns it */
    /* See backend_ops.observe. */
    void (*observer)(void *arg, const struct weight *w, const float *x, uint32_t rows);
    void *observer_arg;
    char describe[96];
};

/* Panels are assigned to threads in groups of this many, at load and in every product. */
enum { PANEL_GRAIN = 4 };
enum { MAX_HEAD_DIM = 1088 };
/* What blocks of operations are sized by; and the scratch memory of a thread, in which attention to
 * the widest heads has one part. */
enum { THREAD_SCRATCH = 640 * 1024, THREAD_MEMORY = 800 * 1024 };

/* Grows on demand; contents are lost. NULL (and d->fault set): out of memory. */
void *cpu_scratch(struct device *d, enum scratch which, size_t bytes);
static inline char *cpu_thread_scratch(struct device *d, int thread)
{
    return d->thread_scratch + (size_t)thread * THREAD_MEMORY;
}

void *cpu_alloc(struct device *d, size_t bytes, struct err *e); /* backend_ops.alloc */
/* Zeroed pages, huge ones if the kernel has them; NULL: out of memory. */
void *cpu_map(size_t bytes);
void cpu_unmap(void *p, size_t bytes);
/* Number of blocks at the start of each stream that are populated before the cache is used. Pure:
 * depends only on `desc` and block_bytes. */
uint32_t cpu_kv_front(const struct kv_cache *kv);
/* Populates them, with all threads of the device. ERR_SYSTEM: out of memory. */
int cpu_populate_front(struct device *d, const struct kv_cache *kv, struct err *e);
/* Populates the rest in the background. NULL if that is not possible: then pages are populated on
 * first use. End it before the memory is freed. */
struct populate *cpu_populate(const struct device *d, const struct kv_cache *kv);
void cpu_populate_end(struct populate *f); /* NULL is fine */
int cpu_memory(uint64_t *free_bytes, uint64_t *total_bytes, struct err *e);

/* Storage and products of one kind of weights. */
struct weight_kind {
    size_t (*panel_bytes)(const struct weight *w);
    /* writes `row` of a part to a lane of a zeroed panel */
    void (*pack)(struct device *d, int thread, const struct weight *w, char *panel, int lane,
                 const struct mat_part *p, int64_t row);
    /* dst[0 .. n) = columns k .. k + n - 1 of a row, as fp32 */
    void (*row)(float *dst, const struct weight *w, uint32_t row, uint32_t k, uint32_t n);
    void (*linear)(struct device *d, float *y, const float *x, uint32_t rows,
                   const struct weight *w, const float *bias);
    /* For codes: columns [k, k + n) of a panel as fp32, [n][16], n up to the next multiple of 8.
     * NULL: the products use the panels directly. */
    void (*widen)(const struct kernels *kern, float *dst, const struct weight *w, const char *panel,
                  uint32_t k, uint32_t n);
};
/* kind_codes8: as kind_codes, and activations are rounded to 8 bits. kind_int4: the same with the
 * layout of Q4_0; its factors bring the scales into the range of half precision. */
extern const struct weight_kind kind_plain, kind_int8, kind_w8a8, kind_int4, kind_fp8, kind_codes,
    kind_codes8;
/* The layout that fits all parts, whose codes must be set. */
void code_layout_make(struct code_layout *l, const struct mat_part *parts, int n);
/* Computes the offsets within a block: `offset`, `by` and `less` say whether it has them (0: no),
 * and become offsets; sets `codes` and `bytes`. Uses upper, scales and groups. */
void code_layout_place(struct code_layout *l);
/* Sets w->block: the least of the parts, whose codes are e4m3. */
void cpu_blocks_make(struct weight *w, const struct mat_desc *m);
/* The methods of kinds with codes. */
size_t code_panel_bytes(const struct weight *w);
void code_row(float *dst, const struct weight *w, uint32_t row, uint32_t k, uint32_t n);
void code_widen(const struct kernels *kern, float *dst, const struct weight *w, const char *panel,
                uint32_t k, uint32_t n);
/* Columns k .. k + 31 of a lane of a zeroed panel are q, times a scale that half precision holds.
 * For layouts of Q4_0. */
void code_pack_signed(const struct code_layout *l, char *panel, uint32_t lane, uint32_t k,
                      const int8_t *q, float scale);

struct weight {
    const struct weight_kind *kind;
    enum dtype dtype;
    bool half;  /* x is rounded to w's 16-bit type and multiplied in pairs */
    float top;  /* of float16 in pairs: the greatest magnitude, or 0 */
    bool whole; /* mat_desc.whole */
    /* Parts of x in linear_squares(). 1: x is rounded; SQUARE_PARTS: it is not; 0: fp32 products.
     * Of fp32 SQUARE_PARTS or 0. */
    uint8_t squares;
    /* of linear_float(): for these panels, or for widened ones */
    void (*tile)(const struct tile *t);
    struct code_layout codes; /* of kind_codes, kind_codes8 and kind_int4 */
    uint32_t block;           /* of kind_fp8: columns that share a scale; 0: all */
    uint32_t rows, cols, n_panels;
    uint32_t stored; /* columns of a panel: cols, or with `from` fewer */
    size_t panel_bytes, bytes, bytes_beside;
    char *data;
    /* Of kind_plain: [n_panels] the first column that a panel has; all columns that it does not
     * have are 0 (bands.c). NULL: panels have all columns. */
    uint32_t *from;
    uint32_t *order; /* for codes: column k is column order[k] of x; NULL: column k */
    float *factor;   /* [n_panels][16] factors of the sums of codes; NULL: 1 */
    bool mapped;     /* data, from, order and factor belong to the caller and are read-only */
};
static inline bool has_codes(const struct weight *w)
{
    return w->kind == &kind_codes || w->kind == &kind_codes8 || w->kind == &kind_int4;
}
/* The first column of a panel. */
static inline uint32_t panel_from(const struct weight *w, size_t panel)
{
    return w->from ? w->from[panel] : 0;
}
/* The end of the panels, at most `end`, whose columns are those of `panel`. */
static inline size_t panels_alike(const struct weight *w, size_t panel, size_t end)
{
    size_t next = w->from ? panel + 1 : end;
    while (next < end && w->from[next] == w->from[panel])
        next++;
    return next;
}
/* Finds panels that are 0 outside of three quarters of the columns, before the matrix is packed:
 * sets `from`, `stored` and `bytes_beside`, or leaves them. -1: out of memory. */
int cpu_bands_find(struct weight *w, const struct mat_desc *m, struct err *e);
bool cpu_bands_fit(const struct weight *w); /* true if the products of its kind know bands */
/* The part with row *row of the stacked parts; *row becomes its row of that part. */
const struct mat_part *cpu_part_of(const struct mat_desc *m, int64_t *row);
/* Its columns, and zeros up to a whole group. */
static inline uint32_t code_cols(const struct weight *w)
{
    return (w->cols + CODE_COLS - 1) / CODE_COLS * CODE_COLS;
}
static inline const char *weight_panel(const struct weight *w, size_t panel)
{
    return w->data + panel * w->panel_bytes;
}
/* Sets d->half, half_f16, squares and kv as d->features and `asked` say.
 * squares_i8 and squares_codes, which do not change a bit, follow measurements of about a
 * millisecond. All are false before. */
void choose_products(struct device *d, enum arith asked);
/* Sizes of heads in bfloat16 are best multiples of it; 0: bfloat16 is not faster. */
uint32_t cpu_head_step(const struct device *d);
uint32_t cpu_tile_rows(const struct device *d); /* backend_ops.tile_rows */
/* backend_ops.head_size: with it, q and the weights of attention are rounded, too. */
uint32_t cpu_head_size(const struct device *d, enum dtype weights, uint32_t head_dim,
                       enum kv_dtype *kv);
/* Products of attention over a cache of this type; `rounds`: kv_desc.rounds. */
struct kv_products cpu_kv_products(const struct device *d, enum kv_dtype type, bool rounds);
/* Columns of kind_fp8 that share a scale: a power of two, which divides the columns that a product
 * takes at a time. */
enum { BLOCK_LEAST = 32, BLOCK_MOST = 2048 };
static inline bool block_fits(uint32_t block)
{
    return block >= BLOCK_LEAST && block <= BLOCK_MOST && !(block & (block - 1));
}
/* True for float16 in pairs, whose rows of x have a factor: f16_unit(). */
static inline bool has_row_units(const struct weight *w) { return w->half && w->dtype == DT_F16; }
/* True for 8 bits with a scale for each row, which multiplies the sums at the end. */
static inline bool has_row_scales(const struct weight *w)
{
    return w->kind == &kind_int8 || (w->kind == &kind_fp8 && !w->block);
}
/* The scales of an 8-bit panel: 16, or [blocks][16]. */
static inline const float *row_scales(const struct weight *w, const char *panel)
{
    return (const float *)(panel + (size_t)quads_of(w->cols) * STEP_BYTES);
}
void linear_float(struct device *d, float *y, const float *x, uint32_t rows, const struct weight *w,
                  const float *bias);
/* Columns k .. k + 31 of a row of x in the order of w's, zeros after the last one: in place, or
 * in `copy`. */
const float *code_group_of(float *copy, const float *row, const struct weight *w, uint32_t k);
void linear_codes(struct device *d, float *y, const float *x, uint32_t rows, const struct weight *w,
                  const float *bias);
/* The same bits on matrix units. code_cols() is a multiple of 64. */
void linear_code_squares(struct device *d, float *y, const float *x, uint32_t rows,
                         const struct weight *w, const float *bias);
/* Rows of x and y, `ldx` and `ldy` numbers apart. */
struct strided {
    float *y;
    const float *x, *bias; /* bias: NULL or one for each output */
    size_t ldy, ldx;
};
/* A row of x of squares (squares.h): its place in the first step of its first part, and the bytes
 * to its next step and its next part. */
struct square_row {
    char *to;
    size_t step, part;
    uint32_t parts;
};
/* Writes n numbers as bfloat16, rounded or in parts that add up to them; zeros after the last. */
void square_place_bf16(const struct kernels *kern, const struct square_row *r, const float *src,
                       uint32_t n);
/* w->squares, or w8a8. */
void linear_squares(struct device *d, const struct strided *io, uint32_t rows,
                    const struct weight *w);
void linear_int(struct device *d, float *y, const float *x, uint32_t rows, const struct weight *w,
                const float *bias);

/* Keys or values of one head of one layer: [block]. A block is 2^page_shift pages: see kv_page.h.
 */
struct kv_stream {
    char *data;
    uint32_t dim;
    size_t page_bytes, block_bytes;
};
/* [layer][K, V][kv head], then the layer's index keys if it has some: one stream per head, so that
 * a head's blocks with adjacent numbers are adjacent in memory. Then its entries (entries.c). */
struct kv_cache {
    struct kv_desc desc; /* without `layers` */
    struct populate *populate;
    uint32_t page_shift, n_streams;
    uint32_t *first, *n_heads; /* [n_layers] first stream of a layer; its heads */
    uint32_t *every;           /* [n_layers] kv_layer.every */
    struct kv_stream *streams;
    size_t block_bytes, bytes; /* size of a block of all streams; total size */
    char *data;
};
static inline const struct kv_stream *kv_stream(const struct kv_cache *kv, uint32_t layer, bool v,
                                                uint32_t head)
{
    return &kv->streams[kv->first[layer] + (v ? kv->n_heads[layer] : 0) + head];
}
static inline const struct kv_stream *kv_index_stream(const struct kv_cache *kv, uint32_t layer)
{
    return &kv->streams[kv->first[layer] + 2 * kv->n_heads[layer]];
}
/* The entries of a layer that has some: a page is a row. */
static inline const struct kv_stream *kv_entry_stream(const struct kv_cache *kv, uint32_t layer)
{
    const bool last = layer + 1 == kv->desc.n_layers;
    return &kv->streams[(last ? kv->n_streams : kv->first[layer + 1]) - 1];
}
/* Page number `page` of a sequence. */
static inline char *kv_page(const struct kv_cache *kv, const struct kv_stream *s,
                            const uint32_t *blocks, uint32_t page)
{
    const size_t block = blocks[page >> kv->page_shift];
    const uint32_t in_block = (1u << kv->page_shift) - 1;
    return s->data + ((block << kv->page_shift) + (page & in_block)) * s->page_bytes;
}
/* kv.c: stores a key, or with `v` a value, in the cache's type. */
void kv_store(const struct kernels *kern, enum kv_dtype t, const struct kv_stream *stream, bool v,
              uint32_t slot, const float *x);
/* One head of one token in the type of the cache, dimension after dimension; a byte for each
 * nibble. Returns `small`, or x if that has the type; the scale of types that have none is 1. */
union kv_narrow {
    uint16_t half[MAX_HEAD_DIM];
    uint8_t byte[MAX_HEAD_DIM];
};
const void *kv_narrow(const struct kernels *kern, enum kv_dtype t, union kv_narrow *small,
                      const float *x, uint32_t dim, float *scale);
/* Places it in a page of keys, or with `v` of values. */
void kv_put(char *page, enum kv_dtype t, bool v, uint32_t at, uint32_t dim, const void *x,
            float scale);
/* Of an entry (entries.c): bytes of its numbers, as above; of all, with the scale at the end. */
static inline size_t kv_narrow_bytes(enum kv_dtype t, uint32_t dim)
{
    return t == KV_I4 ? dim : kv_dtype_bytes(t, dim);
}
static inline size_t kv_entry_bytes(enum kv_dtype t, uint32_t dim)
{
    return (kv_narrow_bytes(t, dim) + sizeof(float) + 63) & ~(size_t)63;
}
/* Packs rows of q for the scores kernels: [kv_dims(dim)][tile_stride(n)]. */
void kv_pack_q(const struct device *d, enum kv_dtype t, float *to, const float *const *rows,
               uint32_t n, uint32_t dim, float scale);
/* Calls the scores kernel of the cache's type. */
void kv_score(const struct device *d, enum kv_dtype t, const struct kv_scores *s);

/* entries.c: copies the entry number `entry` of a sequence to place `at` of a page of keys or
 * values. */
void cpu_copy_entry(const struct kv_cache *kv, uint32_t layer, const uint32_t *blocks,
                    uint32_t entry, uint32_t every, char *page, bool v, uint32_t at);

/* backend_ops.attention of some spans. attention_top.c: the same with p->top or p->entries. */
struct attn_call {
    float *o;
    const float *q;
    uint32_t q_stride, layer;
    const struct kv_cache *kv;
    const struct attn *p;
    const struct span *spans;
    uint32_t n_spans;
};
void cpu_attend(struct device *d, const struct attn_call *c);
void cpu_attend_top(struct device *d, const struct attn_call *c);
/* Scratch memory of these, and of select_keys(): as much, unless a token needs more. */
enum { TOP_BYTES = 64 << 20 };

/* True if 16-bit numbers of two columns are interleaved in panels: see kernels.h. */
static inline bool in_pairs(const struct weight *w)
{
    return w->dtype == DT_BF16 || (w->dtype == DT_F16 && w->half);
}
/* Packs rows [row, row + 16) of `p` into one panel. False if some are missing or have to be
 * converted: then they are packed one by one. */
bool cpu_pack_panel(const struct weight *w, char *panel, const struct mat_part *p, int64_t row);

/* rwkv.c: RECUR_RWKV before and after state.c's update: a row's decays, keys and values; norms,
 * bonuses and gates of all results. */
void cpu_rwkv_prepare(const struct device *d, const struct recur *p, size_t row);
void cpu_rwkv_finish(struct device *d, float *o, const struct recur *p);

/* The operations of backend.h, one file per subject. */
#define X(op) BACKEND_OP(cpu, op);
BACKEND_OPS(X)
#undef X
/* Chooses the product of a matrix by w->kind, w->dtype and w->whole: sets half, squares and tile.
 */
void cpu_weight_choose(const struct device *d, struct weight *w);
BACKEND_OP(cpu, weight_layout);
BACKEND_OP(cpu, weight_image);
BACKEND_OP(cpu, weight_mapped);
BACKEND_OP(cpu, observe);
BACKEND_OP(cpu, mlp);
/* Reserves scratch memory for sequences as long as the cache, so that steps allocate none. It is
 * not touched before it is used. */
bool cpu_attention_reserve(struct device *d, const struct kv_desc *k);
#endif
