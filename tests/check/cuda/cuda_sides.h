/* cuda_sides.h - shared by the tests of the CUDA backend: the plugin, a device beside the CPU's,
 * and access to results.
 *
 * Without a GPU the plugin is the one built with tests/cuda_double, where the same kernels run on
 * the CPU. On a machine with a GPU, `make gpu-check` runs these programs with
 * build/bin/backend-cuda.so (BACKEND_CUDA), without the tests that only the double supports. Test
 * programs of one file include this; main() returns cuda_tests_run(). */
#ifndef TESTS_CHECK_CUDA_SIDES_H
#define TESTS_CHECK_CUDA_SIDES_H
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/numbers.h"
#include "model-server/backend/plugin.h"
#include "tests/check/random.h"
#include "tests/cuda_double/cuda_runtime_api.h"
#include "tests/unit/test.h"
#include <dlfcn.h>
#include <string.h>

enum { TENSOR = 1, GRAPHS = 2, OVERLAP = 4 };

static struct rng rng;
static const struct backend_ops *gpu;
static const struct backend_plugin *plugin;
static struct cuda_double *machine; /* NULL: a real GPU */
/* The double opens a device without launches: its check of wgmma, which takes most of the time of
 * many tests, then compares equal memory. With true it is computed. */
static bool check_at_start;
static const struct backend_ops *const cpu = &backend_cpu;

/* A device and access to its results. */
struct side {
    const struct backend_ops *ops;
    struct device *d;
};

/* On the CPU without AMX, whose sums have another order than those of vectors and of fp32 products
 * on a GPU. */
static inline struct side open_side(const struct backend_ops *ops, uint64_t features)
{
    struct err e = ERR_INIT;
    const struct device_options o = {
        .threads = 1, .features = ops == cpu ? features & ~(uint64_t)CPU_AMX_BF16 : features};
    const bool idle = machine && machine->idle;
    if (machine && ops == gpu)
        machine->idle = !check_at_start;
    struct side s = {ops, ops->open(&o, &e)};
    if (machine)
        machine->idle = idle;
    if (!s.d)
        fail_msg("%s", e.msg);
    return s;
}

static inline void close_side(struct side s)
{
    s.ops->close(s.d);
    if (machine && s.ops == gpu) {
        assert_int_equal(machine->allocations, 0);
        machine->sms = 132;
    }
}

static inline void *up(struct side s, const void *src, size_t bytes)
{
    struct err e = ERR_INIT;
    void *p = s.ops->alloc(s.d, bytes + 64, &e);
    if (!p || (src && s.ops->upload(s.d, p, src, bytes, &e)))
        fail_msg("%s", e.msg);
    return p;
}

static inline void down(struct side s, void *dst, void *src, size_t bytes)
{
    struct err e = ERR_INIT;
    if (s.ops->download(s.d, dst, src, bytes, &e))
        fail_msg("%s", e.msg);
    s.ops->free(s.d, src);
}

static inline struct weight *load_quant(struct side s, const float *w, uint32_t rows, uint32_t cols,
                                        enum dtype t, enum quant q)
{
    struct err e = ERR_INIT;
    struct mat_part part = {w, DT_F32, rows, cols, cols, 1};
    struct weight *out = s.ops->weight_load(s.d, &(struct mat_desc){&part, 1, t, q}, &e);
    if (!out)
        fail_msg("%s", e.msg);
    return out;
}

/* As the checkpoint has them. */
static inline struct weight *load_codes(struct side s, const struct mat_codes *codes, uint32_t rows,
                                        uint32_t cols, enum dtype t)
{
    struct err e = ERR_INIT;
    struct mat_part part = {.rows = rows, .cols = cols, .source = SOURCE_CODES, .codes = codes};
    struct weight *out = s.ops->weight_load(
        s.d, &(struct mat_desc){.parts = &part, .n_parts = 1, .dtype = t, .arith = ARITH_INT8}, &e);
    if (!out)
        fail_msg("%s", e.msg);
    return out;
}

static inline struct weight *load(struct side s, const float *w, uint32_t rows, uint32_t cols,
                                  enum dtype t)
{
    return load_quant(s, w, rows, cols, t, QUANT_NONE);
}

/* The numbers that a product uses, [rows][cols], read by looking up every row. */
static inline float *looked_up(struct side s, const struct weight *w, uint32_t rows, uint32_t cols)
{
    struct err e = ERR_INIT;
    size_t bytes = (size_t)rows * cols * 4;
    uint32_t *ids = malloc(rows * sizeof(*ids)), *zero = calloc(rows, sizeof(*zero));
    for (uint32_t i = 0; i < rows; i++)
        ids[i] = i;
    const struct span span = {0, rows, rows, zero, 0};
    const struct ragged b = {rows, 1, 0, ids, zero, zero, &span, zero};
    float *out = malloc(bytes), *y = up(s, NULL, bytes);
    assert_int_equal(s.ops->step_begin(s.d, &b, &e), 0);
    s.ops->embed(s.d, y, w, 0, 1.0f);
    if (s.ops->step_end(s.d, &e))
        fail_msg("%s", e.msg);
    down(s, out, y, bytes);
    free(ids), free(zero);
    return out;
}

/* In (-1, 1): sums of products stay far from overflow in every type. */
static inline float *units(size_t n)
{
    float *p = rng_floats(&rng, n);
    for (size_t i = 0; i < n; i++)
        p[i] = rng_unit(&rng);
    return p;
}

static inline float *linear(struct side s, const float *x, uint32_t rows, struct weight *w,
                            uint32_t n, uint32_t k, const float *bias)
{
    float *y = malloc((size_t)rows * n * 4);
    float *dx = up(s, x, (size_t)rows * k * 4), *db = up(s, bias, n * 4);
    float *dy = up(s, NULL, (size_t)rows * n * 4);
    s.ops->linear(s.d, dy, dx, rows, w, bias ? db : NULL);
    down(s, y, dy, (size_t)rows * n * 4);
    s.ops->free(s.d, dx), s.ops->free(s.d, db);
    return y;
}

/* Compares a random product with the CPU's, within its rounding error. `step`: half a unit in the
 * last place of x's type; 0: the bits of the CPU. */
static inline void check_linear(struct side g, struct side c, uint32_t rows, uint32_t n, uint32_t k,
                                enum dtype t, double step)
{
    float *w = units((size_t)n * k), *x = units((size_t)rows * k), *bias = units(n);
    struct weight *gw = load(g, w, n, k, t), *cw = load(c, w, n, k, t);
    float *got = linear(g, x, rows, gw, n, k, bias), *want = linear(c, x, rows, cw, n, k, bias);
    for (uint32_t i = 0; i < rows * n; i++) {
        double mag = 1e-30;
        for (uint32_t j = 0; step > 0 && j < k; j++)
            mag += fabs((double)w[(size_t)(i % n) * k + j] * x[(size_t)(i / n) * k + j]);
        if (step > 0 ? !(fabs((double)got[i] - want[i]) <= mag * step * 1.02)
                     : memcmp(&got[i], &want[i], 4) != 0)
            fail_msg("%s [%u, %u] x %u rows: y[%u][%u] = %g, the CPU's is %g", dtype_name(t), n, k,
                     rows, i / n, i % n, got[i], want[i]);
    }
    g.ops->weight_free(g.d, gw), c.ops->weight_free(c.d, cw);
    free(w), free(x), free(bias), free(got), free(want);
}

static inline void assert_near(const float *got, const float *want, size_t n, double within,
                               const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= within * (1 + fabs(want[i]))))
            fail_msg("%s: element %zu is %.9g, the CPU's is %.9g", what, i, got[i], want[i]);
}

/* Opens the plugin that the environment names: 1, 0 if there is none, -1 if it cannot be used. */
static inline int cuda_sides_open(size_t n_tests)
{
    const char *path = getenv("BACKEND_CUDA"), *stand_in = getenv("CUDA_DOUBLE");
    struct err e = ERR_INIT;
    rng = rng_new();
    if (!path && !stand_in) {
        printf("skipped: %zu cases (no GPU plugin is given, and the double runs on x86-64 only)\n",
               n_tests);
        return 0;
    }
    if (!(plugin = backend_plugin_load(path ? path : stand_in, &e)) || plugin->available(&e)) {
        fprintf(stderr, "%s\n", e.msg);
        return -1;
    }
    gpu = plugin->ops;
    void *so = dlopen(path ? path : stand_in, RTLD_NOW);
    struct cuda_double *(*get)(void);
    *(void **)&get = dlsym(so, "cuda_double");
    machine = get ? get() : NULL;
    return 1;
}

/* Runs all tests; the exit status of main(). */
static inline int cuda_tests_run(void)
{
    const int ready = cuda_sides_open(tests_count());
    return ready > 0 ? tests_run(NULL, NULL) : ready < 0;
}
#endif
