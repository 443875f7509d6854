#include "model-server/bench/watch.h"
#include "common/clock.h"
#include <inttypes.h>
#include <string.h>

enum { MOST = 64 }; /* kinds of operations; the last takes what has no room */

struct op_kind {
    const char *name;
    uint64_t bytes; /* of the weight; 0: none */
    int64_t ns, calls;
};

static struct {
    const struct backend_ops *ops;
    struct op_kind kinds[MOST];
    int n;
    int64_t steps, start, ns, inside; /* of whole steps; of their operations */
} found;

static void add_ns(const char *name, uint64_t bytes, int64_t ns)
{
    struct op_kind *k = found.kinds;
    while (k < found.kinds + found.n && (k->bytes != bytes || strcmp(k->name, name) != 0))
        k++;
    if (k == found.kinds + found.n && found.n < MOST)
        *k = (struct op_kind){name, bytes, 0, 0}, found.n++;
    k -= k == found.kinds + MOST;
    k->ns += ns, k->calls++;
    found.inside += ns;
}

static void add(const char *name, uint64_t bytes, int64_t start)
{
    add_ns(name, bytes, clock_ns() - start);
}

/* An operation without a result: `args` as declared, `pass` as handed on. */
#define TIMED(op, bytes, args, pass)                                                               \
    static void watch_##op args                                                                    \
    {                                                                                              \
        int64_t start = clock_ns();                                                                \
        found.ops->op pass;                                                                        \
        add(#op, bytes, start);                                                                    \
    }

TIMED(embed, 0,
      (struct device * d, float *y, const struct weight *w, uint32_t first_row, float scale),
      (d, y, w, first_row, scale))
TIMED(embed_pos, 0, (struct device * d, float *y, const struct weight *w, uint32_t offset),
      (d, y, w, offset))
TIMED(norm, 0,
      (struct device * d, float *y, const float *x, uint32_t rows, uint32_t n,
       const struct norm *p),
      (d, y, x, rows, n, p))
TIMED(add_norm, 0,
      (struct device * d, float *y, float *x, const float *r, float scale, uint32_t rows,
       uint32_t n, const struct norm *p),
      (d, y, x, r, scale, rows, n, p))
TIMED(linear, found.ops->weight_bytes(w),
      (struct device * d, float *y, const float *x, uint32_t rows, const struct weight *w,
       const float *bias),
      (d, y, x, rows, w, bias))
TIMED(row_squares, 0,
      (struct device * d, float *y, const float *x, uint32_t stride, uint32_t rows, uint32_t a,
       uint32_t b),
      (d, y, x, stride, rows, a, b))
TIMED(gate_rows, 0,
      (struct device * d, float *x, uint32_t rows, uint32_t n, const float *gate, bool softplus),
      (d, x, rows, n, gate, softplus))
TIMED(scale_heads, 0,
      (struct device * d, float *x, uint32_t rows, uint32_t heads, uint32_t n, const float *by,
       const float *slope, const float *offset),
      (d, x, rows, heads, n, by, slope, offset))
TIMED(rope_kv, 0,
      (struct device * d, float *qkv, struct kv_cache *kv, uint32_t layer, const struct rope_kv *p),
      (d, qkv, kv, layer, p))
TIMED(attention, 0,
      (struct device * d, float *o, const float *q, uint32_t q_stride, const struct kv_cache *kv,
       uint32_t layer, const struct attn *p),
      (d, o, q, q_stride, kv, layer, p))
TIMED(act_mul, 0,
      (struct device * d, float *y, const float *x, uint32_t rows, uint32_t n, enum act act),
      (d, y, x, rows, n, act))
TIMED(act, 0, (struct device * d, float *x, uint32_t rows, uint32_t n, enum act act),
      (d, x, rows, n, act))
TIMED(moe, 0, (struct device * d, float *y, const float *x, uint32_t rows, const struct moe *p),
      (d, y, x, rows, p))
TIMED(gather_out, 0, (struct device * d, float *y, const float *x, uint32_t n), (d, y, x, n))
TIMED(logit_scale, 0,
      (struct device * d, float *x, uint32_t rows, uint32_t n, float scale, float cap),
      (d, x, rows, n, scale, cap))

static bool watch_mlp(struct device *d, float *y, const float *x, uint32_t rows,
                      const struct mlp *p)
{
    const int64_t start = clock_ns();
    if (!found.ops->mlp(d, y, x, rows, p))
        return false;
    add("mlp", found.ops->weight_bytes(p->up) + found.ops->weight_bytes(p->down), start);
    return true;
}

static int watch_download(struct device *d, void *dst, const void *src, size_t bytes, struct err *e)
{
    int64_t start = clock_ns();
    int rc = found.ops->download(d, dst, src, bytes, e);
    add("download", 0, start);
    return rc;
}

static int watch_step_begin(struct device *d, const struct ragged *b, struct err *e)
{
    found.start = clock_ns();
    return found.ops->step_begin(d, b, e);
}

static int watch_step_end(struct device *d, struct err *e)
{
    int rc = found.ops->step_end(d, e);
    found.ns += clock_ns() - found.start;
    found.steps++;
    return rc;
}

/* A launch on a device that reports them itself. */
static void add_launch(void *arg, const char *what, uint64_t bytes, double us)
{
    (void)arg;
    add_ns(what, bytes, (int64_t)(us * 1e3));
}

static struct device *watch_open(const struct device_options *o, struct err *e)
{
    struct device *d = found.ops->open(o, e);
    if (d)
        found.ops->profile(d, add_launch, NULL);
    return d;
}

const struct backend_ops *watch_ops(const struct backend_ops *ops)
{
    static struct backend_ops all;
    all = *ops;
    found.ops = ops;
    if (ops->profile) {
        all.open = watch_open;
        all.step_begin = watch_step_begin;
        all.step_end = watch_step_end;
        return &all;
    }
#define TAKE(op)                                                                                   \
    if (all.op)                                                                                    \
    all.op = watch_##op
    TAKE(embed);
    TAKE(embed_pos);
    TAKE(norm);
    TAKE(add_norm);
    TAKE(linear);
    TAKE(row_squares);
    TAKE(gate_rows);
    TAKE(scale_heads);
    TAKE(rope_kv);
    TAKE(attention);
    TAKE(act_mul);
    all.mlp = ops->mlp ? watch_mlp : NULL;
    TAKE(act);
    TAKE(moe);
    TAKE(gather_out);
    TAKE(logit_scale);
    TAKE(download);
    TAKE(step_begin);
    TAKE(step_end);
#undef TAKE
    return &all;
}

void watch_reset(void)
{
    found.n = 0;
    found.steps = found.ns = found.inside = 0;
}

/* Without the ending that all launchers have. */
static size_t name_length(const char *name)
{
    const char *end = strstr(name, "_launch");
    return end ? (size_t)(end - name) : strlen(name);
}

void watch_print(struct buf *out)
{
    double steps = (double)(found.steps ? found.steps : 1) * 1e3; /* and ns to microseconds */
    buf_str(out, "\n| operation | us of a step | calls of a step | us of a call | GB/s |\n"
                 "|---|---|---|---|---|\n");
    for (const struct op_kind *k = found.kinds; k < found.kinds + found.n; k++) {
        buf_str(out, "| ");
        buf_add(out, k->name, name_length(k->name));
        if (k->bytes)
            buf_fmt(out, ", %.1f MB", (double)k->bytes * 1e-6);
        buf_fmt(out, " | %.1f | %.1f | %.1f | ", (double)k->ns / steps,
                (double)k->calls / steps * 1e3, (double)k->ns / (double)k->calls * 1e-3);
        if (k->bytes)
            buf_fmt(out, "%.1f", (double)k->bytes * (double)k->calls / (double)k->ns);
        buf_str(out, " |\n");
    }
    if (found.ops->profile)
        buf_fmt(out, "| all launches of a step, of %lld, one after the other | %.1f | | | |\n",
                (long long)found.steps, (double)found.inside / steps);
    else
        buf_fmt(out,
                "| between them | %.1f | | | |\n| all of a step, %lld of them | %.1f | | | |\n",
                (double)(found.ns - found.inside) / steps, (long long)found.steps,
                (double)found.ns / steps);
}
