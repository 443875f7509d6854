/* model-server bench: tokens per second of the engine's forward pass alone (no gRPC, no HTTP),
 * beside the memory bandwidth measured in the same run. Token ids are pseudo-random; their values
 * do not matter. */
#include "common/clock.h"
#include "common/flag.h"
#include "common/log.h"
#include "model-server/bench/limits.h"
#include "model-server/commands.h"
#include "model-server/model/model.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct bench_cfg {
    const char *model, *device;
    uint32_t dtype, threads, prefill, decode, depth, batch, repeat;
    bool json;
};

static const char *const dtypes[] = {"auto", "float32", "float16", "bfloat16", NULL};
#define AT(field) .off = offsetof(struct bench_cfg, field)
static const struct flag rows[] = {
    {.name = "model",
     .positional = true,
     .required = true,
     .type = FLAG_STR,
     AT(model),
     .env = "",
     .help = "Directory of the checkpoint."},
    {.name = "device", .type = FLAG_STR, AT(device), .def = "auto", .help = "cpu, cuda or auto."},
    {.name = "dtype",
     .type = FLAG_ENUM,
     AT(dtype),
     .def = "auto",
     .choices = dtypes,
     .help = "Storage of the weights; auto: as in the checkpoint."},
    {.name = "threads",
     .type = FLAG_U32,
     AT(threads),
     .def = "0",
     .max = 256,
     .min = 0,
     .help = "Threads of the CPU backend; 0: all cores."},
    {.name = "prefill",
     .type = FLAG_U32,
     AT(prefill),
     .def = "512",
     .min = 0,
     .max = 1e6,
     .unit = "tokens",
     .help = "Length of the prompt that is timed; 0: none."},
    {.name = "decode",
     .type = FLAG_U32,
     AT(decode),
     .def = "32",
     .min = 0,
     .max = 1e6,
     .unit = "steps",
     .help = "Decode steps that are timed; 0: none."},
    {.name = "depth",
     .type = FLAG_U32,
     AT(depth),
     .def = "0",
     .min = 0,
     .max = 1e6,
     .unit = "tokens",
     .help = "Context that lies in the cache before the timed decode steps."},
    {.name = "batch",
     .type = FLAG_U32,
     AT(batch),
     .def = "1",
     .min = 1,
     .max = 1024,
     .help = "Sequences decoded together."},
    {.name = "repeat",
     .type = FLAG_U32,
     AT(repeat),
     .def = "5",
     .min = 1,
     .max = 1000,
     .help = "Rounds; the median is reported."},
    {.name = "json", .type = FLAG_BOOL, AT(json), .help = "One JSON object instead of a table."},
    {0},
};
static const struct flag_program program = {
    "model-server bench",
    "Times the forward pass: prefill, decode, and the share of the memory bandwidth.", rows};

enum { BLOCK = 16, CHUNK = 512 };

struct bench {
    struct bench_cfg c;
    struct model *m;
    const struct model_info *info;
    float *logits;
    uint32_t *ids, *pos, *slots, *blocks, *out_rows; /* blocks: [batch][per_seq] */
    struct span *spans;
    uint32_t per_seq;
};

/* One step over `n` new tokens of each of `seqs` sequences that hold `kv` tokens already. */
static int step(struct bench *b, uint32_t seqs, uint32_t kv, uint32_t n, struct err *e)
{
    struct ragged r = {seqs * n, seqs, seqs, b->ids, b->pos, b->slots, b->spans, b->out_rows};
    for (uint32_t s = 0; s < seqs; s++) {
        const uint32_t *blocks = b->blocks + (size_t)s * b->per_seq;
        b->spans[s] = (struct span){s * n, n, kv + n, blocks};
        b->out_rows[s] = s * n + n - 1;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t row = s * n + i, p = kv + i;
            b->ids[row] = (p * 2654435761u + s * 40503u) % b->info->vocab;
            b->pos[row] = p;
            b->slots[row] = blocks[p / BLOCK] * BLOCK + p % BLOCK;
        }
    }
    return model_forward(b->m, &r, b->logits, e);
}

static int fill(struct bench *b, uint32_t seqs, uint32_t tokens, struct err *e)
{
    uint32_t chunk = CHUNK / seqs ? CHUNK / seqs : 1;
    for (uint32_t kv = 0; kv < tokens; kv += chunk)
        if (step(b, seqs, kv, tokens - kv < chunk ? tokens - kv : chunk, e) != 0)
            return -1;
    return 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median seconds of `repeat` rounds of a prefill or of all decode steps. */
static int median(struct bench *b, bool decode, double *out, struct err *e)
{
    double t[1000];
    for (uint32_t i = 0; i < b->c.repeat; i++) {
        int64_t start = clock_ns();
        if (!decode && fill(b, 1, b->c.prefill, e) != 0)
            return -1;
        for (uint32_t k = 0; decode && k < b->c.decode; k++)
            if (step(b, b->c.batch, b->c.depth + k, 1, e) != 0)
                return -1;
        t[i] = (double)(clock_ns() - start) * 1e-9;
    }
    qsort(t, b->c.repeat, sizeof(*t), by_value);
    *out = t[b->c.repeat / 2];
    return 0;
}

static int prepare(struct bench *b, struct err *e)
{
    const struct bench_cfg *c = &b->c;
    uint32_t longest = c->prefill > c->depth + c->decode ? c->prefill : c->depth + c->decode;
    uint32_t rows_max = c->batch > CHUNK ? c->batch : CHUNK;
    b->per_seq = (longest + BLOCK - 1) / BLOCK;
    size_t n_blocks = (size_t)b->per_seq * c->batch;
    b->logits = malloc((size_t)c->batch * b->info->vocab * sizeof(float));
    b->ids = calloc((size_t)rows_max * 4 + n_blocks, sizeof(uint32_t));
    b->spans = calloc(c->batch, sizeof(*b->spans));
    if (!b->logits || !b->ids || !b->spans)
        return err_nomem(e);
    b->pos = b->ids + rows_max;
    b->slots = b->pos + rows_max;
    b->out_rows = b->slots + rows_max;
    b->blocks = b->out_rows + rows_max;
    for (size_t i = 0; i < n_blocks; i++)
        b->blocks[i] = (uint32_t)i;
    return model_kv_resize(b->m, (uint32_t)n_blocks, BLOCK,
                           b->info->dtype == DT_F32 ? DT_F32 : b->info->dtype, e);
}

static int measure(struct bench *b, struct err *e)
{
    const struct bench_cfg *c = &b->c;
    double prefill = 0, decode = 0;
    int threads = c->threads ? (int)c->threads : (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (prepare(b, e) != 0 || fill(b, 1, c->prefill, e) != 0)
        return -1;
    if (c->prefill && median(b, false, &prefill, e) != 0)
        return -1;
    if (c->decode && (fill(b, c->batch, c->depth, e) != 0 || median(b, true, &decode, e) != 0))
        return -1;
    double limit = limit_read_bandwidth(threads, (size_t)1 << 30, 5, e);
    if (limit < 0)
        return -1;
    double prefill_s = c->prefill ? c->prefill / prefill : 0;
    double steps_s = c->decode ? c->decode / decode : 0;
    double read = steps_s * (double)b->info->weight_bytes;
    printf(c->json
               ? "{\"prefill_tokens\":%u,\"prefill_tokens_per_s\":%.2f,\"decode_batch\":%u,"
                 "\"decode_depth\":%u,"
                 "\"decode_tokens_per_s\":%.3f,\"weight_bytes\":%llu,\"weight_read_gb_per_s\":%.2f,"
                 "\"limit_read_gb_per_s\":%.2f,\"fraction_of_bandwidth\":%.3f}\n"
               : "prefill %u tokens     %10.1f tokens/s\ndecode batch %u depth %u %8.2f tokens/s\n"
                 "weights                %10llu bytes\nread while decoding    %10.1f GB/s\n"
                 "read limit, same run   %10.1f GB/s\nfraction of the limit  %10.2f\n",
           c->prefill, prefill_s, c->batch, c->depth, steps_s * c->batch,
           (unsigned long long)b->info->weight_bytes, read * 1e-9, limit * 1e-9, read / limit);
    return 0;
}

int cmd_bench(int argc, char **argv)
{
    struct bench b = {0};
    struct err e = ERR_INIT;
    struct device *dev = NULL;
    const struct backend_ops *ops = NULL;
    int rc = flags_parse(&program, &b.c, argc, argv, NULL, &e);
    if (rc != 0)
        goto out;
    rc = -1;
    struct device_options options = {.threads = (int)b.c.threads, .features = ~0ull};
    if (!(ops = backend_find(b.c.device, &e)) || !(dev = ops->open(&options, &e)))
        goto out;
    struct model_options mo = {
        .ops = ops, .dev = dev, .comm = comm_solo(), .dtype = (int)b.c.dtype - 1};
    if (!(b.m = model_load(b.c.model, &mo, &e)))
        goto out;
    b.info = model_info(b.m);
    rc = measure(&b, &e);
out:
    if (rc < 0)
        fprintf(stderr, "model-server bench: %s\n", e.msg);
    free(b.logits);
    free(b.ids);
    free(b.spans);
    model_free(b.m);
    if (dev)
        ops->close(dev);
    return rc < 0;
}
