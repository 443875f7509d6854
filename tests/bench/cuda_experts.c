/* cuda_experts.c - a layer's mixture of experts at the shapes of five models, on a GPU: one JSON
 * object a line. What is timed is the backend's operation: router, routing, the experts' products
 * and the sum of their results. Up to 64 rows are decode steps, replayed as a graph.
 *
 *   BACKEND_CUDA=backend-cuda.so cuda_experts [small | SHAPE...]
 *
 * small: a shape for trying it out. SHAPE: only these. bytes_per_s counts the weights of the
 * experts that have rows, once each. CUDA_FEATURES chooses the kernels: -16417 leaves out wgmma for
 * experts, -32801 what is fused to their products. */
#include "model-server/backend/random_tensor.h"
#include "tests/bench/cuda_bench.h"

enum { ROUNDS = 7, LAYERS = 2, MOST_CALLS = 64, STEP_ROWS = 64, CODED = 16 };

struct shape {
    const char *name;
    uint32_t hidden, ffn, experts, top_k;
    const struct format *format; /* NULL: bfloat16 */
    enum act act;
    bool biased;
};
static const struct shape shapes[] = {
    {"mixtral-8x7b", 4096, 14336, 8, 2, NULL, ACT_SILU, false},
    {"qwen3-30b-a3b", 2048, 768, 128, 8, NULL, ACT_SILU, false},
    {"qwen3-30b-a3b-fp8", 2048, 768, 128, 8, &fp8_blocks, ACT_SILU, false},
    {"gpt-oss-20b", 2880, 2880, 32, 4, &formats[FORMAT_MXFP4], ACT_SWIGLU_CLAMPED, true},
    {"gpt-oss-120b", 2880, 2880, 128, 4, &formats[FORMAT_MXFP4], ACT_SWIGLU_CLAMPED, true}};
static const struct shape small_shapes[] = {
    {"small", 160, 96, 12, 3, NULL, ACT_SILU, false},
    {"small-fp8", 256, 128, 20, 2, &fp8_blocks, ACT_SILU, false},
    {"small-mxfp4", 256, 128, 20, 2, &formats[FORMAT_MXFP4], ACT_SWIGLU_CLAMPED, true}};
static const uint32_t row_counts[] = {1, 4, 16, 64, 512, 2048};
static const uint32_t small_rows[] = {1, 5, 70};

/* ---------------------------------------------------------------- weights */

static struct weight *load(const struct mat_part *part, enum dtype type)
{
    struct err e = ERR_INIT;
    struct weight *w = ops->weight_load(dev, &(struct mat_desc){part, 1, type}, &e);
    if (!w)
        fail(&e);
    return w;
}

static struct weight *load_random(uint32_t rows, uint32_t cols, uint32_t seed)
{
    const struct random_tensor r = {seed, 0, 0.02f};
    return load(
        &(struct mat_part){NULL, DT_BF16, rows, cols, cols, 1, SOURCE_RANDOM, 0, .random = &r},
        DT_BF16);
}

/* Random codes with scales of 2^-7. */
static struct weight *load_codes(uint32_t rows, uint32_t cols, const struct format *f)
{
    struct mat_codes c = random_codes(f, rows, cols, 0x2000, rows);
    struct weight *w =
        load(&(struct mat_part){.rows = rows, .cols = cols, .source = SOURCE_CODES, .codes = &c},
             DT_BF16);
    free_codes(&c);
    return w;
}

/* Packing codes takes the host long: so experts far apart share a matrix, larger together than the
 * second-level cache. */
struct layer {
    float *router; /* on the host */
    struct weight *router_w, **up, **down;
    float *biases;
};

static void load_layer(struct layer *l, const struct shape *s, uint32_t number)
{
    const bool coded = s->format;
    const uint32_t n = coded && s->experts > CODED ? CODED : s->experts;
    l->router = random_floats((size_t)s->experts * s->hidden, 1 + number);
    l->router_w =
        load(&(struct mat_part){l->router, DT_F32, s->experts, s->hidden, s->hidden, 1}, DT_F32);
    l->up = host_memory(s->experts * sizeof(*l->up));
    l->down = host_memory(s->experts * sizeof(*l->down));
    for (uint32_t i = 0; i < s->experts; i++) {
        const struct format *f = s->format;
        if (i >= n)
            l->up[i] = l->up[i - n], l->down[i] = l->down[i - n];
        else if (coded)
            l->up[i] = load_codes(2 * s->ffn, s->hidden, f),
            l->down[i] = load_codes(s->hidden, s->ffn, f);
        else
            l->up[i] = load_random(2 * s->ffn, s->hidden, 2 * (number * s->experts + i)),
            l->down[i] = load_random(s->hidden, s->ffn, 2 * (number * s->experts + i) + 1);
    }
    const size_t biases = (size_t)s->experts * (1 + 2 * s->ffn + s->hidden);
    l->biases = NULL;
    if (s->biased) {
        float *host = random_floats(biases, 7);
        l->biases = device_memory(host, biases * sizeof(*host));
        free(host);
    }
}

static void free_layer(struct layer *l, const struct shape *s)
{
    const uint32_t n = s->format && s->experts > CODED ? CODED : s->experts;
    for (uint32_t i = 0; i < n; i++)
        ops->weight_free(dev, l->up[i]), ops->weight_free(dev, l->down[i]);
    ops->weight_free(dev, l->router_w);
    ops->free(dev, l->biases);
    free(l->router), free(l->up), free(l->down);
}

/* ---------------------------------------------------------------- the experts that are read */

/* Experts that the rows of x choose. */
static uint32_t experts_of(const struct layer *l, const struct shape *s, const float *x,
                           uint32_t rows)
{
    bool *read = calloc(s->experts, sizeof(*read));
    double *score = host_memory(s->experts * sizeof(*score));
    uint32_t n = 0;
    for (uint32_t r = 0; read && r < rows; r++) {
        for (uint32_t e = 0; e < s->experts; e++) {
            score[e] = 0;
            for (uint32_t i = 0; i < s->hidden; i++)
                score[e] +=
                    (double)l->router[(size_t)e * s->hidden + i] * x[(size_t)r * s->hidden + i];
        }
        for (uint32_t k = 0; k < s->top_k; k++) {
            uint32_t best = 0;
            for (uint32_t e = 1; e < s->experts; e++)
                best = score[e] > score[best] ? e : best;
            n += !read[best];
            read[best] = true, score[best] = -1e30;
        }
    }
    free(read), free(score);
    return n;
}

/* ---------------------------------------------------------------- timing */

struct bench {
    const struct shape *s;
    struct layer layers[LAYERS];
    uint32_t rows, calls; /* calls of a round, each with other rows of x */
    float *x, *y;
};

static void run_calls(const struct bench *b)
{
    const struct shape *s = b->s;
    for (uint32_t i = 0; i < b->calls; i++) {
        const struct layer *l = &b->layers[i % LAYERS];
        const struct moe m = {.router = l->router_w,
                              .up = l->up,
                              .down = l->down,
                              .n_experts = s->experts,
                              .top_k = s->top_k,
                              .renormalise = true,
                              .scale = 1,
                              .act = s->act,
                              .router_bias = l->biases,
                              .up_bias = l->biases ? l->biases + s->experts : NULL,
                              .down_bias =
                                  l->biases ? l->biases + s->experts * (1 + 2 * s->ffn) : NULL};
        ops->moe(dev, b->y, b->x + (size_t)i * b->rows * s->hidden, b->rows, &m);
    }
}

/* A step of one-token sequences, without a cache. */
static void run_step(const struct bench *b)
{
    static const uint32_t zeros[STEP_ROWS];
    struct span spans[STEP_ROWS];
    struct err e = ERR_INIT;
    for (uint32_t i = 0; i < b->rows; i++)
        spans[i] = (struct span){.first = i, .n = 1, .kv_len = 1, .blocks = zeros};
    const struct ragged r = {.n_tokens = b->rows,
                             .n_spans = b->rows,
                             .ids = zeros,
                             .pos = zeros,
                             .slots = zeros,
                             .spans = spans,
                             .out_rows = zeros};
    if (ops->step_begin(dev, &r, &e))
        fail(&e);
    run_calls(b);
    if (ops->step_end(dev, &e))
        fail(&e);
}

static double round_ns(const struct bench *b)
{
    struct err e = ERR_INIT;
    float first;
    const int64_t start = clock_ns();
    if (b->rows <= STEP_ROWS)
        run_step(b);
    else
        run_calls(b);
    if (ops->download(dev, &first, b->y, sizeof(first), &e)) /* waits for them */
        fail(&e);
    return (double)(clock_ns() - start) / b->calls;
}

static void time_rows(struct bench *b, uint32_t rows)
{
    const struct shape *s = b->s;
    double ns[ROUNDS], read = 0;
    b->rows = rows;
    b->calls = rows <= 16 ? MOST_CALLS : rows <= STEP_ROWS ? 16 : 4;
    const size_t n = (size_t)b->calls * rows * s->hidden;
    float *x = random_floats(n, rows);
    b->x = device_memory(x, n * sizeof(*x));
    b->y = device_memory(NULL, (size_t)rows * s->hidden * sizeof(*x));
    for (uint32_t i = 0; i < b->calls; i++) /* more rows choose all experts */
        read += rows > STEP_ROWS
                    ? s->experts
                    : experts_of(&b->layers[i % LAYERS], s, x + (size_t)i * rows * s->hidden, rows);
    read /= b->calls;
    for (int i = 0; i < 3; i++) /* seen, captured, warm */
        round_ns(b);
    for (int i = 0; i < ROUNDS; i++)
        ns[i] = round_ns(b);
    qsort(ns, ROUNDS, sizeof(*ns), ascending);
    const struct layer *l = &b->layers[0];
    const double expert = (double)(ops->weight_bytes(l->up[0]) + ops->weight_bytes(l->down[0]));
    printf("{\"what\": \"experts\", \"shape\": \"%s\", \"rows\": %u, \"format\": \"%s\", "
           "\"experts_read\": %.1f, \"ms\": %.4f, \"flop_per_s\": %.4g, \"weight_bytes_per_s\": "
           "%.4g, \"device\": \"%s\"}\n",
           s->name, rows, s->format ? s->format->name : "bfloat16", read, ns[ROUNDS / 2] * 1e-6,
           6e9 * rows * s->top_k * s->ffn * s->hidden / ns[ROUNDS / 2],
           1e9 * read * expert / ns[ROUNDS / 2], ops->describe(dev));
    fflush(stdout);
    ops->free(dev, b->x), ops->free(dev, b->y);
    free(x);
}

static void time_shape(const struct shape *s, const uint32_t *rows, size_t n_rows)
{
    struct bench b = {.s = s};
    for (uint32_t i = 0; i < LAYERS; i++)
        load_layer(&b.layers[i], s, i);
    for (size_t i = 0; i < n_rows; i++)
        time_rows(&b, rows[i]);
    for (uint32_t i = 0; i < LAYERS; i++)
        free_layer(&b.layers[i], s);
}

static bool chosen(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return true;
    return argc == 1;
}

int main(int argc, char **argv)
{
    const bool small = argc > 1 && strcmp(argv[1], "small") == 0;
    if (!bench_open())
        return 0;
    for (size_t i = 0; small && i < sizeof(small_shapes) / sizeof(*small_shapes); i++)
        time_shape(&small_shapes[i], small_rows, sizeof(small_rows) / sizeof(*small_rows));
    for (size_t i = 0; !small && i < sizeof(shapes) / sizeof(*shapes); i++)
        if (chosen(shapes[i].name, argc, argv))
            time_shape(&shapes[i], row_counts, sizeof(row_counts) / sizeof(*row_counts));
    ops->close(dev);
    return 0;
}
