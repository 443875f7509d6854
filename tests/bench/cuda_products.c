/* cuda_products.c - products alone, at the shapes of Llama 3.1 8B in bfloat16, on a GPU: one JSON
 * object a line. A product is the backend's operation: fp32 in and out, rounding the rows included.
 * Median of several rounds; each round takes weights in turn that no cache holds together.
 *
 *   BACKEND_CUDA=backend-cuda.so cuda_products [small|SHAPE] [FORMAT]...
 *
 * small: shapes for trying it out. SHAPE: only this one, gate_up for example. FORMAT: instead of
 * bfloat16 a scheme (int8, w8a8, int4, fp8), or random codes of a format: q4_k for example, or
 * fp8_blocks.
 * CUDA_FEATURES chooses the kernels: -49 mma.sync, -1 wgmma. */
#include "tests/bench/cuda_bench.h"

enum { ROUNDS = 7, COLD_BYTES = 256 << 20, MAX_COPIES = 16, FEWEST = 8 };

struct shape {
    const char *name;
    uint32_t n, k;
};
static const struct shape shapes[] = {
    {"qkv", 6144, 4096}, {"o", 4096, 4096}, {"gate_up", 28672, 4096}, {"down", 4096, 14336}};
static const struct shape small_shapes[] = {{"small", 150, 200}};
enum { MANY = 9 };
static const uint32_t row_counts[MANY] = {1, 4, 16, 32, 64, 128, 512, 2048, 8192};
static const uint32_t small_rows[] = {1, 70, 200};

struct product {
    struct weight *w[MAX_COPIES];
    uint32_t copies, inner; /* weights taken in turn; products a round */
    float *x, *y;
};

static double round_ns(const struct product *p, uint32_t rows)
{
    struct err e = ERR_INIT;
    float first;
    int64_t start = clock_ns();
    for (uint32_t i = 0; i < p->inner; i++)
        ops->linear(dev, p->y, p->x, rows, p->w[i % p->copies], NULL);
    if (ops->download(dev, &first, p->y, sizeof(first), &e)) /* waits for them */
        fail(&e);
    return (double)(clock_ns() - start) / p->inner;
}

static void time_rows(const struct product *p, const struct shape *s, const char *format,
                      uint32_t rows)
{
    double ns[ROUNDS];
    round_ns(p, rows); /* warm */
    for (int i = 0; i < ROUNDS; i++)
        ns[i] = round_ns(p, rows);
    qsort(ns, ROUNDS, sizeof(*ns), ascending);
    printf("{\"what\": \"product\", \"shape\": \"%s\", \"n\": %u, \"k\": %u, \"rows\": %u, "
           "\"format\": \"%s\", \"ms\": %.4f, \"flop_per_s\": %.4g, \"weight_bytes_per_s\": %.4g, "
           "\"device\": \"%s\"}\n",
           s->name, s->n, s->k, rows, format, ns[ROUNDS / 2] * 1e-6,
           2e9 * rows * s->n * s->k / ns[ROUNDS / 2],
           1e9 * (double)ops->weight_bytes(p->w[0]) / ns[ROUNDS / 2], ops->describe(dev));
    fflush(stdout);
}

/* What the weights are: of a scheme, or codes of `format` unless that is NULL. */
struct stored_as {
    const char *name;
    enum quant quant;
    const struct format *format;
};

static unsigned stored_bits(const struct stored_as *as)
{
    return as->format                ? as->format->bits
           : as->quant == QUANT_NONE ? 16
           : as->quant == QUANT_INT4 ? 4
                                     : 8;
}

static void time_shape(const struct shape *s, const struct stored_as *as, const uint32_t *rows,
                       size_t n_rows)
{
    struct err e = ERR_INIT;
    const struct format *f = as->format;
    const uint32_t most = rows[n_rows - 1];
    size_t bytes = (size_t)s->n * s->k * stored_bits(as) / 8, copies = COLD_BYTES / bytes + 1;
    size_t n_host = (size_t)s->k * (most > s->n ? most : s->n);
    struct product p = {.copies = (uint32_t)(copies < MAX_COPIES ? copies : MAX_COPIES)};
    p.inner = p.copies > FEWEST ? p.copies : FEWEST;
    float *host = random_floats(n_host, 1);
    struct mat_part part = {host, DT_F32, s->n, s->k, s->k, 1};
    struct mat_codes codes = {0};
    if (f) {
        codes = random_codes(f, s->n, s->k, 0x2400, 1); /* scales of 1/64 */
        part =
            (struct mat_part){.rows = s->n, .cols = s->k, .source = SOURCE_CODES, .codes = &codes};
    }
    for (uint32_t i = 0; i < p.copies; i++)
        if (!(p.w[i] = ops->weight_load(
                  dev, &(struct mat_desc){.parts = &part, 1, DT_BF16, .quant = as->quant}, &e)))
            fail(&e);
    p.x = device_memory(host, (size_t)most * s->k * 4);
    p.y = device_memory(NULL, (size_t)most * s->n * 4);
    for (size_t i = 0; i < n_rows; i++)
        time_rows(&p, s, as->name, rows[i]);
    ops->free(dev, p.x), ops->free(dev, p.y);
    for (uint32_t i = 0; i < p.copies; i++)
        ops->weight_free(dev, p.w[i]);
    free_codes(&codes);
    free(host);
}

/* `only` NULL: all shapes; "small": those for trying it out. */
static void time_all(const char *only, const struct stored_as *as)
{
    static const struct shape small_codes = {"small", 150, 256};
    const bool few = as->quant || as->format;
    if (only && strcmp(only, "small") == 0)
        time_shape(as->format ? &small_codes : small_shapes, as, small_rows, 3);
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        if (!only || strcmp(only, shapes[i].name) == 0)
            time_shape(&shapes[i], as, row_counts, few ? MANY - 1 : MANY);
}

/* The first argument, if it is a shape's name. */
static const char *shape_named(const char *name)
{
    bool is = name && strcmp(name, "small") == 0;
    for (size_t i = 0; name && i < sizeof(shapes) / sizeof(*shapes); i++)
        is |= strcmp(name, shapes[i].name) == 0;
    return is ? name : NULL;
}

static struct stored_as stored_named(const char *name)
{
    struct err e = ERR_INIT;
    for (int i = FORMAT_Q4_0; i < FORMAT_N; i++)
        if (strcmp(formats[i].name, name) == 0)
            return (struct stored_as){name, QUANT_NONE, &formats[i]};
    if (strcmp(fp8_blocks.name, name) == 0)
        return (struct stored_as){name, QUANT_NONE, &fp8_blocks};
    struct stored_as as = {name, QUANT_NONE, NULL};
    if (quant_parse(name, &as.quant, &e))
        fail(&e);
    return as;
}

int main(int argc, char **argv)
{
    const char *only = shape_named(argv[1]);
    const int first = only ? 2 : 1;
    if (!bench_open())
        return 0;
    if (argc == first)
        time_all(only, &(struct stored_as){"bfloat16", QUANT_NONE, NULL});
    for (int i = first; i < argc; i++) {
        const struct stored_as as = stored_named(argv[i]);
        time_all(only, &as);
    }
    ops->close(dev);
    return 0;
}
