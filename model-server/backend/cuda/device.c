/* device.c - opens the device or says why not; its memory, its stream; the plugin's table. */
#include "model-server/backend/cuda/cuda.h"
#include "model-server/backend/plugin.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* ---------------------------------------------------------------- errors */

int cuda_failed(const struct device *d, cudaError_t rc, const char *what, struct err *e)
{
    return err_set(e, ERR_SYSTEM, "GPU %d: %s: %s", d->index, what, cudaGetErrorString(rc));
}

void cuda_fault(struct device *d, cudaError_t rc, const char *what)
{
    if (d->fault.kind == ERR_NONE)
        cuda_failed(d, rc, what, &d->fault);
}

/* The error if there is no device at all. */
static int no_device(cudaError_t rc, struct err *e)
{
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (!driver)
        return err_set(e, ERR_SYSTEM, "no NVIDIA driver (libcuda.so.1) on this machine");
    if (rc == cudaErrorInsufficientDriver || driver / 1000 < runtime / 1000)
        return err_set(e, ERR_SYSTEM,
                       "the NVIDIA driver supports CUDA %d.%d, this program needs %d.%d: update it",
                       driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    if (rc == cudaErrorNoDevice || rc == cudaSuccess)
        return err_set(e, ERR_SYSTEM,
                       "no GPU is visible on this machine (see CUDA_VISIBLE_DEVICES)");
    return err_set(e, ERR_SYSTEM, "no GPU can be used: %s", cudaGetErrorString(rc));
}

static int check_available(struct err *e)
{
    int n = 0;
    cudaError_t rc = cudaGetDeviceCount(&n);
    return rc == cudaSuccess && n > 0 ? 0 : no_device(rc, e);
}

/* ---------------------------------------------------------------- memory */

void *cuda_take(struct device *d, size_t bytes, const char *what, const char *remedy, struct err *e)
{
    static const double gib = 1 << 30;
    void *p = NULL;
    size_t left = 0, total = 0;
    cudaError_t rc = cudaMalloc(&p, bytes ? bytes : 1);
    if (rc == cudaSuccess)
        return p;
    cudaGetLastError(); /* clears the error of a failed allocation */
    if (rc != cudaErrorMemoryAllocation || cudaMemGetInfo(&left, &total) != cudaSuccess) {
        cuda_failed(d, rc, what, e);
        return NULL;
    }
    err_set(e, ERR_SYSTEM,
            "GPU %d: no memory for %s: %.2f GiB are wanted, %.2f of %.2f are free; %s", d->index,
            what, (double)bytes / gib, (double)left / gib, (double)total / gib, remedy);
    return NULL;
}

void cuda_retire(struct device *d, void *p)
{
    void **all = p ? realloc(d->retired, ((size_t)d->n_retired + 1) * sizeof(*all)) : NULL;
    if (!p)
        return;
    if (!all) { /* recorded operations may use it: run them first */
        cuda_flush(d, false);
        cudaFree(p);
        return;
    }
    d->retired = all;
    all[d->n_retired++] = p;
}

static void cuda_drop_retired(struct device *d)
{
    for (uint32_t i = 0; i < d->n_retired; i++)
        cudaFree(d->retired[i]);
    d->n_retired = 0;
}

void *cuda_work(struct device *d, enum workspace which, size_t bytes)
{
    if (d->work[which].bytes >= bytes)
        return d->work[which].p;
    cuda_retire(d, d->work[which].p);
    d->work[which].bytes = 0;
    d->work[which].p =
        cuda_take(d, bytes, "the scratch of a step",
                  "lower --max-batch-prefill-tokens or --kv-cache-memory", &d->fault);
    if (d->work[which].p)
        d->work[which].bytes = bytes;
    return d->work[which].p;
}

int cuda_sync(struct device *d, const char *what, struct err *e)
{
    if (d->group)
        return group_wait(d, NULL, e);
    cudaError_t rc = cudaStreamSynchronize(d->stream);
    return rc == cudaSuccess ? 0 : cuda_failed(d, rc, what, e);
}

int cuda_wait(struct device *d, cudaEvent_t until, const char *what, struct err *e)
{
    if (d->group)
        return group_wait(d, until, e);
    cudaError_t rc = cudaEventSynchronize(until);
    return rc == cudaSuccess ? 0 : cuda_failed(d, rc, what, e);
}

static void *cuda_alloc(struct device *d, size_t bytes, struct err *e)
{
    void *p = cuda_take(d, bytes, "a step's activations", "lower --max-batch-prefill-tokens", e);
    if (!p)
        return NULL;
    cudaError_t rc = cudaMemsetAsync(p, 0, bytes, d->stream);
    if (rc == cudaSuccess)
        return p;
    cuda_failed(d, rc, "clearing memory", e);
    cudaFree(p);
    return NULL;
}

static void cuda_release(struct device *d, void *p)
{
    if (!p)
        return;
    cuda_flush(d, false);
    cudaFree(p); /* waits for what uses it */
}

static int cuda_memory(struct device *d, uint64_t *free_bytes, uint64_t *total_bytes, struct err *e)
{
    size_t left, total;
    cudaError_t rc = cudaMemGetInfo(&left, &total);
    if (rc != cudaSuccess)
        return cuda_failed(d, rc, "asking for the free memory", e);
    *free_bytes = left, *total_bytes = total;
    return 0;
}

/* ---------------------------------------------------------------- opening */

static void cuda_close(struct device *d)
{
    if (!d || d->stuck)
        return;
    if (d->stream)
        cudaStreamSynchronize(d->stream);
    recorder_free(d);
    batch_free(d);
    draw_free(d);
    outbox_free(&d->copies);
    moe_tables_free(d);
    lora_tables_free(d);
    cuda_drop_retired(d);
    free(d->retired);
    cudaFree(d->tickets);
    for (int i = 0; i < WORK_N; i++)
        cudaFree(d->work[i].p);
    staging_close(d);
    if (d->stream)
        cudaStreamDestroy(d->stream);
    if (d->pool)
        pool_free(d->pool);
    free(d);
}

static unsigned features_of(uint64_t wanted, int major)
{
    unsigned f = (unsigned)wanted & ~(unsigned)CUDA_WGMMA_ANY;
    const char *mask =
        getenv("CUDA_FEATURES"); /* NOLINT(concurrency-mt-unsafe): it is never written */
    if (mask)
        f = (f | CUDA_WGMMA_ANY) & (unsigned)strtoul(mask, NULL, 0);
    /* depend() does nothing before sm_90 */
    return major >= 9 ? f : f & ~(unsigned)(CUDA_OVERLAP | CUDA_KV_AHEAD);
}

/* CUDA_SHARE_GPU=1: ranks share GPUs if there are fewer GPUs than ranks. For tests on one GPU; it
 * is slow. */
static int choose_gpu(struct device *d, int n, struct err *e)
{
    const char *share = getenv("CUDA_SHARE_GPU"); /* NOLINT(concurrency-mt-unsafe): as above */
    if (share && atoi(share) && d->index >= 0)
        d->index %= n;
    if (d->index >= 0 && d->index < n)
        return 0;
    return err_set(e, ERR_VALIDATION,
                   "GPU %d is wanted, and there %s %d, numbered from 0: a rank needs a GPU of its "
                   "own (--num-shard, CUDA_VISIBLE_DEVICES)",
                   d->index, n == 1 ? "is" : "are", n);
}

static int identify(struct device *d, const struct device_options *o, struct cudaDeviceProp *p,
                    struct err *e)
{
    int n = 0;
    cudaError_t rc = cudaGetDeviceCount(&n);
    if (rc != cudaSuccess || n < 1)
        return no_device(rc, e);
    if (choose_gpu(d, n, e))
        return -1;
    if ((rc = cudaSetDevice(d->index)) != cudaSuccess ||
        (rc = cudaGetDeviceProperties(p, d->index)) != cudaSuccess)
        return cuda_failed(d, rc, "opening the device", e);
    if (p->major < 8)
        return err_set(e, ERR_SYSTEM,
                       "GPU %d: %s has compute capability %d.%d; 8.0 or later is needed", d->index,
                       p->name, p->major, p->minor);
    d->sms = p->multiProcessorCount;
    d->clusters = p->major >= 9;
    /* Of a multiprocessor's shared memory a block needs 1 KiB for itself, and 8.1 KiB for
     * sums. */
    d->shared_sm = p->sharedMemPerMultiprocessor, d->shared_block = p->sharedMemPerBlockOptin;
    d->features = features_of(o->features, p->major);
    return 0;
}

static void describe(struct device *d, const struct cudaDeviceProp *p, const char *wgmma)
{
    int driver = 0;
    cudaDriverGetVersion(&driver);
    snprintf(d->describe, sizeof(d->describe),
             "GPU %d, %.64s, compute capability %d.%d, %d multiprocessors, CUDA %d.%d%s%s%s%s",
             d->index, p->name, p->major, p->minor, d->sms, driver / 1000, driver % 1000 / 10,
             d->features & CUDA_TENSOR ? ", tensor cores" : "",
             d->features & CUDA_GRAPHS ? ", graphs" : "",
             d->features & CUDA_OVERLAP ? ", overlap" : "", wgmma);
    /* of the features, those that change bits */
    snprintf(d->arithmetic, sizeof(d->arithmetic), "%.64s, compute capability %d.%d%s%s", p->name,
             p->major, p->minor, d->features & CUDA_TENSOR ? "" : ", no tensor cores",
             d->features & CUDA_WGMMA_ANY ? wgmma : "");
}

static int prepare(struct device *d, const struct device_options *o, struct err *e)
{
    struct cudaDeviceProp p = {0};
    const char *wgmma = "";
    if (identify(d, o, &p, e))
        return -1;
    cudaError_t rc = cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking);
    if (rc != cudaSuccess)
        return cuda_failed(d, rc, "making a stream", e);
    size_t left, total;
    if ((rc = cudaMemGetInfo(&left, &total)) != cudaSuccess)
        return cuda_failed(d, rc, "asking for the memory", e);
    d->split_bytes = total / 64 < 256 << 20 ? total / 64 : 256 << 20;
    if (!(d->tickets = cuda_alloc(d, TICKETS * sizeof(*d->tickets), e)))
        return -1;
    /* now, because serving allocates nothing */
    if (outbox_next(d, &d->copies, (size_t)KV_COPIES * 8, "lists of blocks",
                    "stop what else uses the GPU", e))
        return -1;
    if (staging_open(d, e) || !(d->pool = pool_new(o->threads, e)) ||
        wgmma_decide(d, p.major, p.minor, &wgmma, e))
        return -1;
    describe(d, &p, wgmma);
    return 0;
}

static struct device *cuda_open(const struct device_options *o, struct err *e)
{
    struct device *d = calloc(1, sizeof(*d));
    if (!d)
        return err_nomem(e), NULL;
    d->index = o->index;
    rounding_init(&d->round, cpu_detect());
    if (prepare(d, o, e)) {
        cuda_close(d);
        return NULL;
    }
    return d;
}

static const char *cuda_describe(struct device *d) { return d->describe; }

static void cuda_arithmetic(const struct device *d, enum kv_dtype kv, bool rounds, char *out,
                            size_t size)
{
    (void)kv, (void)rounds; /* attention's kind does not depend on them */
    snprintf(out, size, "%s", d->arithmetic);
}

/* ---------------------------------------------------------------- steps */

static int cuda_step_begin(struct device *d, const struct ragged *b, struct err *e)
{
    assert(!d->batch);
    cuda_flush(d, false);
    if (batch_begin(d, b, e))
        return -1;
    d->batch = b;
    if (b->drawn) {
        struct feed_args a = {d->b.ids, d->b.from, d->draw.board, b->n_tokens, 0};
        RECORD(d, feed_launch, a);
    }
    return 0;
}

static int cuda_step_rehearse(struct device *d, const struct ragged *b, struct err *e)
{
    if (cuda_step_begin(d, b, e))
        return -1;
    d->rehearsal = true;
    return 0;
}

static int cuda_step_end(struct device *d, struct err *e)
{
    struct err late = ERR_INIT;
    cuda_flush(d, d->decode);
    d->rehearsal = false;
    if (d->draw.open)
        draw_collect(d); /* without waiting */
    else if (cuda_sync(d, "running a step", &late) && d->fault.kind == ERR_NONE)
        d->fault = late;
    cuda_drop_retired(d);
    d->batch = NULL;
    if (d->fault.kind == ERR_NONE)
        return 0;
    *e = d->fault;
    d->fault = (struct err)ERR_INIT;
    return -1;
}

/* Errors of kernels and of the hardware stay in the process: every later call returns them. */
static bool cuda_lost(struct device *d)
{
    cudaGetLastError(); /* clears the error of a failed request, which does not stay */
    const cudaError_t rc = cudaStreamQuery(d->stream);
    return rc != cudaSuccess && rc != cudaErrorNotReady;
}

/* The next size that attention on tensor cores takes. */
static uint32_t cuda_head_size(const struct device *d, enum dtype weights, uint32_t head_dim,
                               enum kv_dtype *kv)
{
    static const uint32_t sizes[] = {
#define X(dim) dim,
        ATTN_MMA_DIMS(X)
#undef X
    };
    if (!(d->features & CUDA_TENSOR) || weights == DT_F32)
        return 0;
    *kv = weights == DT_F16 ? KV_F16 : KV_BF16;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        if (head_dim <= sizes[i])
            return sizes[i];
    return 0;
}

static int cuda_host_threads(struct device *d) { return pool_threads(d->pool); }

static void cuda_host_run(struct device *d,
                          void (*fn)(void *arg, int thread, size_t begin, size_t end), void *arg,
                          size_t n)
{
    pool_run(d->pool, fn, arg, n, 1);
}

static const struct backend_ops backend_cuda = {
    .name = "cuda",
    .makes_weights = true,
    .open = cuda_open,
    .close = cuda_close,
    .describe = cuda_describe,
    .arithmetic = cuda_arithmetic,
    .memory = cuda_memory,
    .alloc = cuda_alloc,
    .free = cuda_release,
    .upload = cuda_upload,
    .download = cuda_download,
    .step_begin = cuda_step_begin,
    .step_end = cuda_step_end,
    .step_rehearse = cuda_step_rehearse,
    .lost = cuda_lost,
    .head_size = cuda_head_size,
    .draw = cuda_draw,
    .drawn = cuda_drawn,
    .host_threads = cuda_host_threads,
    .host_run = cuda_host_run,
    .profile = cuda_profile,
    .comm_open = cuda_comm_open,
    .link_open = cuda_link_open,
// clang-format off
#define X(op) .op = cuda_##op,
    BACKEND_OPS(X)
#undef X
    // clang-format on
};

/* The only exported symbol of the plugin. */
__attribute__((visibility("default"))) const struct backend_plugin *backend_plugin_2(void);
const struct backend_plugin *backend_plugin_2(void)
{
    static const struct backend_plugin plugin = {BACKEND_ABI, VERSION, &backend_cuda,
                                                 check_available};
    return &plugin;
}
