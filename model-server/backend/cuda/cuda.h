/* cuda.h - private to this folder: the host side of the CUDA backend.
 *
 * Operations do not run when they are called. They are recorded as (launcher, arguments) and run
 * when the step ends or device memory is read. A decode step with the same recorded bytes as an
 * earlier one is replayed as a CUDA graph (record.c). So graphs and operations cannot diverge.
 * One thread. */
#ifndef MODEL_SERVER_BACKEND_CUDA_CUDA_H
#define MODEL_SERVER_BACKEND_CUDA_CUDA_H
#include "model-server/backend/cuda/kernels/kernels.h"
#include "model-server/backend/host/round.h"
#include "model-server/backend/implement.h"
#include "model-server/backend/threads.h"

/* device_options.features, and the environment variable CUDA_FEATURES for bisecting. */
enum cuda_feature {
    CUDA_TENSOR = 1,      /* tensor cores; without: fp32 arithmetic on the stored weights */
    CUDA_GRAPHS = 2,      /* replay of repeated decode steps */
    CUDA_OVERLAP = 4,     /* programmatic dependent launch */
    CUDA_PEERS = 8,       /* sums over ranks through peer memory */
    CUDA_WGMMA = 16,      /* wgmma for many rows, if its sums have the bits of mma.sync (wgmma.c) */
    CUDA_WGMMA_ANY = 32,  /* or even if they do not; only CUDA_FEATURES can enable it */
    CUDA_FUSE = 64,       /* several operations of a decode step in one kernel (fuse.c) */
    CUDA_X_SHARED = 128,  /* x of products of few rows in shared memory (stream.c) */
    CUDA_HEADS = 256,     /* the last block of a head of q, k or v rotates it (fuse.c) */
    CUDA_WIDEN = 512,     /* quantised weights by wgmma (wgmma.c) */
    CUDA_KV_AHEAD = 1024, /* decode loads K and V before its predecessor ends (attention_split) */
    CUDA_ATTN_WGMMA = 2048,  /* wgmma for prefill attention, where products use it */
    CUDA_DRAW_SHARED = 4096, /* rows of scores in shared memory while tokens are drawn (draw.cu) */
    CUDA_EXPERTS = 16384,    /* experts' products by wgmma, where others would be (moe.c) */
    CUDA_MIX = 32768,        /* routing in one kernel; biases, gates, sums in experts' products */
    CUDA_CHAIN = 65536,      /* fp32 products of few rows, and routers, by a kernel of their own */
};

/* Scratch memory of the device, one region per use, so that an operation may call another. */
enum workspace {
    WORK_NARROW,
    WORK_NARROW_OTHER,
    WORK_SLICES,
    WORK_ATTN,
    WORK_MOE,
    WORK_GATHER,
    WORK_DRAW,
    WORK_LORA,
    WORK_SELECT,
    WORK_ROTATED,
    WORK_SUMS,
    WORK_N
};

struct command {
    launch_fn *fn;
    const char *name;  /* of fn */
    uint32_t at, size; /* of its arguments in recorder.bytes */
};
struct graph {
    uint64_t used; /* when, by recorder.clock; 0: never */
    struct command *commands;
    char *bytes;
    uint32_t n, n_bytes;
    cudaGraphExec_t exec; /* NULL: seen once */
    int number;           /* of its capture, from 1: the same on all ranks */
};
enum { MAX_GRAPHS = 64 };

/* Rows that nothing has read in fp32 so far; where their `alone` is in the recorder's bytes. */
struct unread {
    uintptr_t begin, end;
    uint32_t alone;
};
enum { MAX_UNREAD = 8 };
struct recorder {
    struct command *commands;
    char *bytes;
    uint32_t n, cap, n_bytes, cap_bytes;
    struct graph graphs[MAX_GRAPHS];
    uint64_t clock;
    uint32_t last; /* graph that was found last */
    int captured;  /* graphs so far */
    bool capturing;
    struct unread unread[MAX_UNREAD];
    uint32_t n_unread;
};

/* Pinned memory whose contents one copy per step transfers to the same place on the device. Two
 * alternate, because the copy of the previous step may still be pending. */
struct outbox {
    char *host[2], *dev;
    cudaEvent_t sent[2];
    size_t cap;
    int now;
};

/* The batch on the device: one region, written in pinned memory, copied as a whole. Arrays with
 * fixed addresses come first. attention() adds row_tiles, because they depend on its groups. */
struct batch_record {
    struct outbox box;
    char *host, *dev; /* of the box, now */
    size_t used;
    bool dirty;
    uint32_t *ids, *pos, *slots, *out_rows, *span_of; /* device addresses */
    struct span_view *spans;
    uint32_t *given;         /* [n_tokens] index of the given row; GIVE_NONE */
    struct mutual *mutual;   /* [n_tokens]; NULL: no token of the step belongs to a range */
    uint32_t *tables, *from; /* from: [n_tokens] indices into drawing.board; see feed_args */
    /* the same of caches of windows, in tables at the same places; NULL: there are none */
    uint32_t *window_slots, *window_tables;
    char *draws, *draws_host; /* room for the requests of a draw, on the device and on the host */
    size_t draws_bytes;
    /* row tiles of the group they were made for: split, then shared */
    uint32_t group, n_split, n_shared, split_rows, segments;
    struct row_tile *tiles;
    struct lora_tile *lora; /* rows with adapters; host_lora: the same */
    const struct lora_tile *host_lora;
    uint32_t n_lora;
};

/* Device arrays of the experts' weights, one for each layer's list. maps: tensor maps for
 * linear_experts, or NULL. */
struct expert_table {
    const void *const *key;
    struct weight *first;
    uint32_t n;
    const void **dev;
    void *maps;
};

/* The device's copy of the updates of one matrix by each adapter; see lora.c. */
struct lora_table {
    const struct lora_set *key;
    struct lora_known *known; /* [cap] */
    struct lora_view *dev;    /* [cap] */
    uint32_t cap;
};
struct lora_tables {
    struct lora_table *v;
    uint32_t n, next;
    char **chunks; /* device memory for lists of rows; the last one has `left` bytes left */
    uint32_t n_chunks;
    size_t left;
};

/* Enough buffers that small uploads of the next step need not wait for the running one. */
enum { STAGING_BUFFERS = 8 };
struct staging {
    char *host[STAGING_BUFFERS];
    cudaEvent_t done[STAGING_BUFFERS];
    int next;
};

/* Results of a draw() on the host. */
struct draw_set {
    struct drawn *v; /* these three: pinned */
    struct scored *top;
    float *rows;
    uint32_t n, n_top, n_fetched, cap_n, cap_top;
    size_t cap_rows; /* bytes */
    cudaEvent_t done;
};
struct drawing {
    struct outbox box; /* views, then words */
    size_t used;
    bool dirty;
    struct drawn *board; /* [2][cap_rows] on the device: sampled tokens */
    uint32_t cap_rows;
    struct draw_set set[2], *open; /* open: of the running step, or NULL */
    const struct draw_view *fetch; /* of the running step, in pinned memory */
    float *scores;
    uint32_t pitch, vocab;
};

enum { TICKETS = 4096, KV_COPIES = 1024 /* blocks that one launch copies */ };
struct device {
    int index, sms;
    unsigned features;
    bool stuck;    /* a kernel does not end: nothing can be awaited or freed */
    bool clusters; /* blocks can access each other's shared memory */
    size_t shared_sm,
        shared_block; /* shared memory of a multiprocessor, and of one block at most */
    cudaStream_t stream;
    struct pool *pool;     /* host threads */
    struct rounding round; /* of weights, on the host */
    struct recorder rec;
    struct {
        profile_fn *fn; /* NULL: steps are not profiled */
        void *arg;
    } profile;
    const struct ragged *batch; /* between step_begin() and step_end() */
    bool decode;                /* every span of it has one token */
    bool rehearsal;             /* recorded operations are dropped: step_rehearse() */
    uint32_t narrow_turn;       /* which of WORK_NARROW was taken last in this step */
    struct batch_record b;
    struct drawing draw;
    struct {
        void *p;
        size_t bytes;
    } work[WORK_N];
    void **retired; /* memory that recorded commands may still use */
    uint32_t n_retired;
    struct expert_table *experts;
    uint32_t n_experts;
    struct lora_tables lora;
    struct staging staging;
    struct outbox copies;         /* KV_COPIES sources and destinations */
    uint32_t *tickets;            /* [TICKETS] zeros between kernels, for last_block() */
    size_t split_bytes;           /* limit of attention's partial results */
    uint32_t n_kv, kv_block_size; /* live caches, and their common block size */
    struct err fault; /* error of an operation that cannot return one; step_end() returns it */
    char describe[256];
    struct group *group;  /* a list: ranks of collectives, of messages; NULL: alone */
    char arithmetic[160]; /* backend_ops.arithmetic */
};

struct weight {
    struct stored m;
    size_t bytes;
};

/* Offsets of a layer's streams, [K, V][block] (of a latent layer only K); bytes. See kv_view. */
struct kv_place {
    size_t at, block_bytes, stream_bytes;
    uint32_t k_dim, v_dim, scales, n_heads;
    bool latent;
    uint32_t every; /* kv_layer.every */
};
/* Streams of equal size, one after the other; in_slot: their offset in a slot of the host. */
struct kv_run {
    size_t at, block_bytes, stream_bytes, in_slot;
    uint32_t streams;
};
struct kv_cache {
    struct kv_desc desc;     /* without `layers` */
    struct kv_place *places; /* [n_layers], then as many of index keys, then of entries */
    struct kv_run *runs;
    uint32_t n_runs;
    size_t bytes, slot_bytes;
    char *data;
};
struct kv_view kv_view(const struct kv_cache *kv, uint32_t layer);
/* Of the step's tokens. */
static inline const uint32_t *kv_slots_of(const struct device *d, const struct kv_cache *kv)
{
    return kv->desc.windows ? d->b.window_slots : d->b.slots;
}
struct kv_view kv_index_view(const struct kv_cache *kv, uint32_t layer);
/* Its block_size is rows of a block, and no power of two. */
struct kv_view kv_entry_view(const struct kv_cache *kv, uint32_t layer, uint32_t every);

/* device.c. cuda_failed() turns a CUDA error into `e` ("GPU 0: doing what: why") and returns -1;
 * cuda_fault() stores the first one for step_end(). */
int cuda_failed(const struct device *d, cudaError_t rc, const char *what, struct err *e);
void cuda_fault(struct device *d, cudaError_t rc, const char *what);
/* Allocates device memory, not zeroed; the error names `what`, the free memory, and `remedy`. */
void *cuda_take(struct device *d, size_t bytes, const char *what, const char *remedy,
                struct err *e);
/* A region of at least `bytes`; contents are lost. Recorded operations may use it until the step
 * ends. NULL with a fault. */
void *cuda_work(struct device *d, enum workspace which, size_t bytes);
/* Frees device memory that recorded operations may use, when the step ends. */
void cuda_retire(struct device *d, void *p);
int cuda_sync(struct device *d, const char *what, struct err *e);
int cuda_wait(struct device *d, cudaEvent_t until, const char *what, struct err *e);

/* quantise.c: quantises row `row` of a matrix, w->cols numbers in `f`, to `dst` and the scales of
 * the matrix. `f` has capacity for k_padded() floats and as many bytes, and is overwritten.
 * `known`: the row's scales of struct mat_part, or NULL. */
void cuda_quantise_row(const struct rounding *r, const struct stored *w, char *dst, void *scales,
                       uint32_t row, float *f, const uint16_t *known);
/* Copies row `part_row` of codes in e4m3, with a scale for each row, likewise. */
void cuda_e4m3_row(const struct stored *w, char *dst, void *scales, uint32_t row,
                   const struct mat_codes *c, size_t part_row);

/* codes.c: support of a format; the layout of a matrix whose parts are SOURCE_CODES, into quant,
 * offsets and table of *m; converts row `row` of it, from the part's row `part_row`, to `dst` and
 * the data after the rows, which must be zeroed. */
enum take cuda_codes_take(const struct format *f, enum arith a);
void cuda_codes_layout(struct stored *m, const struct mat_part *parts, int n);
void cuda_codes_row(const struct stored *w, char *dst, void *scales, uint32_t row,
                    const struct mat_codes *c, size_t part_row);

/* staging.c: copies through pinned memory; returns when `src` may be freed, not when the copy has
 * ended. fill(arg, dst, first, n) writes rows [first, first + n) of `row_bytes` each. */
int cuda_upload_rows(struct device *d, void *dst, size_t rows, size_t row_bytes,
                     void (*fill)(void *arg, char *dst, size_t first, size_t n), void *arg,
                     struct err *e);
int cuda_upload(struct device *d, void *dst, const void *src, size_t bytes, struct err *e);
/* Copies at most 4 MiB to memory that no recorded operation reads. Recorded operations are not
 * affected, and run after it. */
int cuda_upload_first(struct device *d, void *dst, const void *src, size_t bytes, struct err *e);
int cuda_download(struct device *d, void *dst, const void *src, size_t bytes, struct err *e);
/* Runs the recorded operations before a copy or a message. A part of a decode step, up to rows of
 * another stage, repeats like a whole one. */
void cuda_flush_part(struct device *d);
/* The other one of the two, with capacity for at least `bytes`, once its last copy has ended; its
 * contents are undefined. outbox_send() enqueues the copy. */
int outbox_next(struct device *d, struct outbox *o, size_t bytes, const char *what,
                const char *remedy, struct err *e);
static inline char *outbox_host(const struct outbox *o) { return o->host[o->now]; }
void outbox_send(struct device *d, struct outbox *o, size_t bytes); /* a fault, if anything */
void outbox_free(struct outbox *o);
int staging_open(struct device *d, struct err *e);
void staging_close(struct device *d);

/* record.c */
void cuda_record(struct device *d, launch_fn *fn, const char *name, const void *args,
                 uint32_t size);
#define RECORD(d, fn, args) cuda_record(d, fn, #fn, &(args), sizeof(args))
/* Runs the recorded operations. `repeats`: searches the graphs for them, and captures one. */
void cuda_flush(struct device *d, bool repeats);
/* Destroys all graphs, also one that is being captured; one that runs ends first. */
void recorder_drop_graphs(struct device *d);
void recorder_free(struct device *d);

/* profile.c: runs the recorded operations one after the other and reports the time of each. */
void cuda_profile(struct device *d, profile_fn *fn, void *arg);
void profile_run(struct device *d);

/* wgmma.c: decides at start-up whether this device uses wgmma; *why: for the log, or "". The
 * product itself: `a` as filled by cuda_linear(). */
int wgmma_decide(struct device *d, int major, int minor, const char **why, struct err *e);
bool wgmma_takes(const struct device *d, const struct linear_args *a);
bool wgmma_has(const struct device *d, const struct stored *w); /* kernels for this format */
bool wgmma_gates(const struct stored *w); /* if the first half of its rows gates the second */
void wgmma_linear(struct device *d, struct linear_args *a);
/* Attention of tiles of many rows, `a` as filled by cuda_attention(). */
bool attn_wgmma_takes(const struct device *d, const struct attn_args *a);
/* Fuses act_mul() into the product x that was recorded last; false: x is not that product. */
bool wgmma_gate(struct device *d, float *y, const float *x, uint32_t rows, uint32_t n,
                enum act act);

/* stream.c: records a product of up to STREAM_ROWS rows, or of experts, with the norm before it if
 * that was recorded last. False, without `must`: x does not fit in shared memory, nothing is
 * recorded. */
bool stream_linear(struct device *d, struct linear_args *a, bool must);
/* The same of experts, with what is fused to their product. */
void stream_experts(struct device *d, struct stream_args *s);
/* x of all rows of the experts' product fits in shared memory. */
bool stream_experts_fit(const struct device *d, const struct stream_args *s);

/* fuse.c: fuse_norm() fuses the norm that was recorded last into the product `s`, if that reads
 * it. The others fuse an operation into the product recorded last; false: it must be recorded.
 * fuse_merge() decides whether attn_split does the work of attn_merge: a->tickets. */
void fuse_norm(struct device *d, struct stream_args *s);
bool fuse_gate(struct device *d, float *y, const float *x, uint32_t rows, uint32_t n, enum act act);
bool fuse_sum(struct device *d, float *x, const float *r, float scale, uint32_t rows, uint32_t n);
bool fuse_rope(struct device *d, const struct rope_args *p);
void fuse_merge(struct device *d, struct attn_args *a);
/* The operation that was recorded last and makes these rows also stores them in the form of `x`, or
 * only in it. */
bool fuse_narrow(struct device *d, const struct narrow_args *x);
bool is_attention(launch_fn *fn);

/* unread.c: the rows are also stored in 16 bits, and `alone`, in the recorder's bytes, says whether
 * only so. look() sees each operation before it is recorded; over() says that a recorded one now
 * writes these rows instead; end() that the step ends. */
void unread_mark(struct device *d, const void *rows, size_t bytes, uint32_t *alone);
void unread_look(struct device *d, launch_fn *fn, const void *args, uint32_t size);
void unread_over(struct device *d, const void *rows);
void unread_end(struct device *d);

/* batch.c */
int batch_begin(struct device *d, const struct ragged *b, struct err *e);
/* True if the tensor-core kernels support this number of query heads per K/V head. All row tiles
 * of a step have the number of its first layer. */
bool batch_group(const struct device *d, uint32_t group);
/* Creates row tiles for a supported group. */
void batch_tiles(struct device *d, uint32_t group, uint32_t n_kv_heads, uint32_t head_dim);
/* Partial results of attention in any batch of this length or less; after batch_tiles(). */
size_t batch_split_bytes(const struct device *d, uint32_t group, uint32_t n_kv_heads,
                         uint32_t head_dim);
/* Blocks of attn_split for each tile and K/V head; after batch_tiles(), if b.n_split. */
uint32_t batch_walkers(const struct device *d, uint32_t n_kv_heads);
uint32_t power_of_two(uint32_t n); /* n, rounded up to one */
void batch_send(struct device *d); /* enqueues the copy of what has changed */
void batch_free(struct device *d);

/* draw.c: copies the requests before the step, and the results after it. */
BACKEND_OP(cuda, draw);
BACKEND_OP(cuda, drawn);
void draw_send(struct device *d);
void draw_collect(struct device *d);
void draw_free(struct device *d);

/* ops.c: runs the product `a`, whose shape and pointers are set, with the matching kernel: for
 * few rows, experts, or many rows. `x_rows`: rows of x, which w8a8 rounds first. */
void cuda_product(struct device *d, struct linear_args *a, uint32_t x_rows);
/* Sets a->narrow and a->x_scale: x in 8 bits, and the scales of its rows. NULL with a fault. */
void cuda_quantise(struct device *d, struct linear_args *a, uint32_t rows, enum narrow_order order);
/* Sets a->narrow: x in 16 bits; NULL with a fault. */
void cuda_narrow(struct device *d, struct linear_args *a, enum narrow_order order);

/* weight.c, kv.c, ops.c, moe.c, lora.c: the operations of backend.h. */
#define X(op) BACKEND_OP(cuda, op);
BACKEND_OPS(X)
#undef X
/* a weight is freed: removes its tables */
void moe_forget(struct device *d, const struct weight *w);
void moe_tables_free(struct device *d);
void lora_tables_free(struct device *d);

/* group.c. group_wait(): cuda_sync(), or with an event cuda_wait(), while watching the other
 * ranks. Modes of a step that may repeat: run it, capture it, or replay the capture with this
 * number, from 1. group_agree() is collective: all replay the same capture, or all capture, or
 * all run. STEP_FAILED, with a fault, if any rank has failed. Call it exactly if there is a
 * group_of_captures(), with that. */
enum { STEP_FAILED = -2, STEP_RUN = -1, STEP_CAPTURE = 0 };
BACKEND_OP(cuda, comm_open);
BACKEND_OP(cuda, link_open);
int group_wait(struct device *d, cudaEvent_t until, struct err *e);
struct group *group_of_captures(const struct device *d); /* NULL: steps have no collectives */
int group_agree(struct group *g, int mine);
#endif
