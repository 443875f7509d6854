/* cuda.h - what the host side of the CUDA backend shares. Nobody outside the folder includes it.
 *
 * Operations do not run when they are called: they are recorded as (launcher, arguments) and run
 * when the step ends or somebody looks at device memory. A step of decodes that was recorded before
 * with the very same bytes is replayed as a CUDA graph (record.c); so there is nothing to keep in
 * agreement between a graph and the operations it stands for. One thread. */
#ifndef MODEL_SERVER_BACKEND_CUDA_CUDA_H
#define MODEL_SERVER_BACKEND_CUDA_CUDA_H
#include "model-server/backend/cpu/threads.h"
#include "model-server/backend/cuda/kernels.h"

/* device_options.features, and the environment variable CUDA_FEATURES for bisecting. */
enum cuda_feature {
    CUDA_TENSOR = 1,  /* tensor cores; without: fp32 arithmetic on the stored weights */
    CUDA_GRAPHS = 2,  /* replay of repeated decode steps */
    CUDA_OVERLAP = 4, /* programmatic dependent launch */
};

/* Scratch memory of the device, one region per use, so that an operation may call another. */
enum workspace { WORK_NARROW, WORK_SLICES, WORK_ATTN, WORK_MOE, WORK_GATHER, WORK_N };

struct command {
    launch_fn *fn;
    uint32_t at, size; /* of its arguments in recorder.bytes */
};
struct graph {
    uint64_t hash, used;
    struct command *commands;
    char *bytes;
    uint32_t n, n_bytes;
    cudaGraphExec_t exec; /* NULL: seen once */
};
enum { MAX_GRAPHS = 64 };
struct recorder {
    struct command *commands;
    char *bytes;
    uint32_t n, cap, n_bytes, cap_bytes;
    struct graph graphs[MAX_GRAPHS];
    uint64_t clock;
    uint64_t captured, replayed, plain; /* steps, for the log and the tests */
};

/* The batch as it lies on the device: one region, written in pinned memory, copied as a whole.
 * Arrays that kernels find by a fixed address come first; row_tiles are added by attention(), which
 * alone knows the groups. */
struct batch_record {
    char *host, *dev;
    size_t cap, used;
    bool dirty;
    uint32_t *ids, *pos, *slots, *out_rows, *span_of; /* device addresses */
    struct span_view *spans;
    uint32_t *tables;
    /* row tiles of the group they were made for: split, then shared */
    uint32_t group, n_split, n_shared, split_rows, segments;
    struct row_tile *tiles;
};

/* Device arrays of the experts' weights, one for each layer's list. */
struct expert_table {
    const void *const *key;
    struct weight *first;
    uint32_t n;
    const void **dev;
};

struct staging {
    char *host[2];
    cudaEvent_t done[2];
    int next;
};

struct device {
    int index, sms;
    unsigned features;
    cudaStream_t stream;
    struct pool *pool; /* host threads */
    struct recorder rec;
    const struct ragged *batch; /* between step_begin() and step_end() */
    bool decode;                /* every span of it has one token */
    struct batch_record b;
    struct {
        void *p;
        size_t bytes;
    } work[WORK_N];
    void **retired; /* workspaces that recorded commands may still name */
    uint32_t n_retired;
    struct expert_table *experts;
    uint32_t n_experts;
    struct staging staging;
    uint32_t n_kv, kv_block_size; /* caches alive, and the block size of all of them */
    struct err fault;             /* of an operation that cannot return one; step_end() does */
    char describe[256];
    /* With NCCL: waits for the stream in the place of cudaStreamSynchronize(). */
    int (*watch)(struct device *d, struct err *e);
    struct nccl *watched;
};

struct weight {
    enum dtype dtype;
    uint32_t rows, cols;
    size_t pitch, bytes; /* pitch: elements from row to row, a multiple of K_ALIGN */
    void *data;
};

/* [layer][K, V][block][kv head][position][dim] */
struct kv_cache {
    struct kv_desc desc;
    size_t block_bytes, stream_bytes, bytes;
    char *data;
};
/* The kernels know the cache by the types of weights: int8 was refused. */
static inline enum dtype kv_storage(const struct kv_cache *kv)
{
    return kv->desc.dtype == KV_F32 ? DT_F32 : kv->desc.dtype == KV_F16 ? DT_F16 : DT_BF16;
}
static inline void *kv_stream(const struct kv_cache *kv, uint32_t layer, bool v)
{
    return kv->data + ((size_t)layer * 2 + v) * kv->stream_bytes;
}

/* device.c. cuda_failed() turns a CUDA error into `e` ("GPU 0: doing what: why") and returns -1;
 * cuda_fault() keeps the first one for step_end(). */
int cuda_failed(const struct device *d, cudaError_t rc, const char *what, struct err *e);
void cuda_fault(struct device *d, cudaError_t rc, const char *what);
/* Device memory, not zeroed; the error names `what`, what is free, and `remedy`. */
void *cuda_take(struct device *d, size_t bytes, const char *what, const char *remedy,
                struct err *e);
/* A region of at least `bytes`, contents lost; valid for what is recorded until the step ends. NULL
 * with a fault. */
void *cuda_work(struct device *d, enum workspace which, size_t bytes);
void cuda_drop_retired(struct device *d);
int cuda_sync(struct device *d, const char *what, struct err *e);

/* staging.c: copies through pinned memory; back when `src` may go, not when the copy has ended.
 * fill(arg, dst, first, n) writes rows [first, first + n) of `row_bytes` each. */
int cuda_upload_rows(struct device *d, void *dst, size_t rows, size_t row_bytes,
                     void (*fill)(void *arg, char *dst, size_t first, size_t n), void *arg,
                     struct err *e);
int cuda_upload(struct device *d, void *dst, const void *src, size_t bytes, struct err *e);
int cuda_download(struct device *d, void *dst, const void *src, size_t bytes, struct err *e);
int staging_open(struct device *d, struct err *e);
void staging_close(struct device *d);

/* record.c */
void cuda_record(struct device *d, launch_fn *fn, const void *args, uint32_t size);
#define RECORD(d, fn, args) cuda_record(d, fn, &(args), sizeof(args))
/* Run what is recorded; `repeats`: look for it among the graphs, and make one. */
void cuda_flush(struct device *d, bool repeats);
void recorder_free(struct device *d);

/* batch.c */
int batch_begin(struct device *d, const struct ragged *b, struct err *e);
/* Row tiles for this many query heads a K/V head; false with a fault. */
bool batch_tiles(struct device *d, uint32_t group, uint32_t n_kv_heads, uint32_t head_dim);
void batch_send(struct device *d); /* enqueue the copy of what has changed */
void batch_free(struct device *d);

/* weight.c, kv.c, ops.c, moe.c: the operations of backend.h. */
struct weight *cuda_weight_load(struct device *d, const struct mat_desc *m, struct err *e);
void cuda_weight_free(struct device *d, struct weight *w);
uint64_t cuda_weight_bytes(const struct weight *w);
float *cuda_vector_load(struct device *d, const struct mat_part *v, float plus, struct err *e);
struct kv_cache *cuda_kv_new(struct device *d, const struct kv_desc *k, struct err *e);
void cuda_kv_free(struct device *d, struct kv_cache *kv);
uint64_t cuda_kv_block_bytes(const struct kv_desc *k);
int cuda_kv_copy(struct device *d, struct kv_cache *kv, const uint32_t *src, const uint32_t *dst,
                 uint32_t n, struct err *e);
void *cuda_host_alloc(struct device *d, size_t bytes, struct err *e);
void cuda_host_free(struct device *d, void *p, size_t bytes);
int cuda_kv_read(struct device *d, struct kv_cache *kv, const uint32_t *blocks, void *host,
                 const uint32_t *slots, uint32_t n, struct err *e);
int cuda_kv_write(struct device *d, struct kv_cache *kv, const uint32_t *blocks, const void *host,
                  const uint32_t *slots, uint32_t n, struct err *e);
void cuda_embed(struct device *d, float *y, const struct weight *w, uint32_t first_row,
                float scale);
void cuda_embed_pos(struct device *d, float *y, const struct weight *w, uint32_t offset);
void cuda_norm(struct device *d, float *y, const float *x, uint32_t rows, uint32_t n,
               const struct norm *p);
void cuda_add_norm(struct device *d, float *y, float *x, const float *r, float scale, uint32_t rows,
                   uint32_t n, const struct norm *p);
void cuda_linear(struct device *d, float *y, const float *x, uint32_t rows, const struct weight *w,
                 const float *bias);
void cuda_rope_kv(struct device *d, float *qkv, struct kv_cache *kv, uint32_t layer,
                  const struct rope_kv *p);
void cuda_attention(struct device *d, float *o, const float *q, uint32_t q_stride,
                    const struct kv_cache *kv, uint32_t layer, const struct attn *p);
void cuda_act_mul(struct device *d, float *y, const float *x, uint32_t rows, uint32_t n,
                  enum act kind);
void cuda_act(struct device *d, float *x, uint32_t rows, uint32_t n, enum act kind);
void cuda_moe(struct device *d, float *y, const float *x, uint32_t rows, const struct moe *p);
void moe_forget(struct device *d, const struct weight *w); /* a weight goes: so do tables of it */
void moe_tables_free(struct device *d);
void cuda_gather_out(struct device *d, float *y, const float *x, uint32_t n);
/* nccl.c: *out stays NULL, without an error, where NCCL does not suit all ranks. */
int nccl_open(struct device *d, struct comm *host, struct comm **out, struct err *e);
struct comm *cuda_comm_open(struct device *d, struct comm *host, struct err *e);
void cuda_logit_scale(struct device *d, float *x, uint32_t rows, uint32_t n, float scale,
                      float cap);
#endif
