/* model-server bench: tokens per second of the forward pass alone, compared with the limits of
 * the machine measured in the same run. */
#include "common/buf.h"
#include "common/log/log.h"
#include "model-server/bench/limits.h"
#include "model-server/bench/report.h"
#include "model-server/bench/watch.h"
#include "model-server/commands.h"
#include "model-server/tool.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 64 }; /* values of a list */

struct bench_config {
    struct tool_options tool;
    struct flag_list prefill, batch, depth;
    uint32_t decode, repeat, chunk;
    bool json, ops;
};

// clang-format off
#define F(field) .off = offsetof(struct bench_config, field), .env = ""
static const struct flag flags[] = {
    TOOL_ROWS(bench_config, tool),
    TOOL_ROW_KV(bench_config, tool),
    TOOL_ROW_SHAPE(bench_config, tool),
    {.name = "prefill", .type = FLAG_LIST, F(prefill), .def = "512", .unit = "tokens",
     .help = "Prompt lengths to time; 0: none."},
    {.name = "chunk", .type = FLAG_U32, F(chunk), .def = "512", .min = 1, .max = 1e6, .unit = "tokens",
     .help = "Most tokens of a prompt in one step. A server's default is 4096."},
    {.name = "decode", .type = FLAG_U32, F(decode), .def = "32", .min = 0, .max = 1e6, .unit = "steps",
     .help = "Decode steps to time for each batch size and depth; 0: none."},
    {.name = "batch", .type = FLAG_LIST, F(batch), .def = "1",
     .help = "Batch sizes of the decode steps."},
    {.name = "depth", .type = FLAG_LIST, F(depth), .def = "0", .unit = "tokens",
     .help = "Context lengths before the decode steps."},
    {.name = "repeat", .type = FLAG_U32, F(repeat), .def = "5", .min = 1, .max = BENCH_ROUNDS_MAX,
     .help = "Repetitions of each case; the median is reported, with best and worst."},
    {.name = "json", .type = FLAG_BOOL, F(json), .help = "One JSON object instead of a table."},
    {.name = "ops", .type = FLAG_BOOL, F(ops),
     .help = "After the table: the time of a step per operation. On a GPU each launch then runs "
             "alone, so the table itself is of slower steps."},
    {0},
};
// clang-format on

static const struct flag_program program = {
    .name = "model-server bench",
    .about = "Times the forward pass: prefill and decode over batches and depths, beside the "
             "memory bandwidth and the arithmetic that the machine shows in the same run.",
    .flags = flags,
};

/* ---------------------------------------------------------------- which cases */

struct number_list {
    uint32_t v[MOST], n;
};

static int numbers(struct number_list *l, const struct flag_list *words, const char *name,
                   uint32_t min, uint32_t max, struct err *e)
{
    l->n = 0;
    for (uint32_t i = 0; i < words->n; i++) {
        char *end;
        unsigned long v = strtoul(words->v[i], &end, 10);
        if (end == words->v[i] || *end || v < min || v > max)
            return err_set(e, ERR_VALIDATION, "--%s: `%.40s` is no number from %u to %u", name,
                           words->v[i], min, max);
        if (l->n == MOST)
            return err_set(e, ERR_VALIDATION, "--%s: at most %d values", name, MOST);
        l->v[l->n++] = (uint32_t)v;
    }
    return 0;
}

struct cases {
    struct bench_result v[MOST + MOST * MOST];
    size_t n;
    uint32_t max_batch, longest;
};

static void add_case(struct cases *c, struct bench_case one)
{
    uint32_t length = one.depth + one.tokens;
    if (!one.tokens)
        return;
    c->v[c->n++].of = one;
    c->max_batch = one.batch > c->max_batch ? one.batch : c->max_batch;
    c->longest = length > c->longest ? length : c->longest;
}

static int list_cases(struct cases *c, const struct bench_config *cfg, struct err *e)
{
    struct number_list prefill, batch, depth;
    if (numbers(&prefill, &cfg->prefill, "prefill", 0, 1000000, e) ||
        numbers(&batch, &cfg->batch, "batch", 1, 1024, e) ||
        numbers(&depth, &cfg->depth, "depth", 0, 1000000, e))
        return -1;
    for (uint32_t i = 0; i < prefill.n; i++)
        add_case(c, (struct bench_case){false, prefill.v[i], 1, 0, cfg->chunk});
    for (uint32_t d = 0; d < depth.n; d++)
        for (uint32_t b = 0; b < batch.n; b++)
            add_case(c, (struct bench_case){true, cfg->decode, batch.v[b], depth.v[d], cfg->chunk});
    return c->n ? 0 : err_set(e, ERR_VALIDATION, "neither --prefill nor --decode: nothing to time");
}

/* ---------------------------------------------------------------- measuring */

/* Before and after the cases: on a shared machine the limits change. */
static int measure_limits(struct bench_report *r, struct err *e)
{
    double read = limit_read_bandwidth(r->threads, (size_t)1 << 30, 5, e);
    double fp32 = read < 0 ? -1 : limit_fp32(r->threads, 5, e);
    if (fp32 < 0)
        return -1;
    r->read_limit = read > r->read_limit ? read : r->read_limit;
    r->fp32_limit = fp32 > r->fp32_limit ? fp32 : r->fp32_limit;
    return 0;
}

static int measure(const struct bench_config *cfg, const struct tool *t, struct cases *c,
                   struct bench_report *r, struct buf *ops, struct err *e)
{
    struct bench_steps steps = {0};
    uint64_t peak;
    int rc = measure_limits(r, e);
    if (rc == 0)
        rc = bench_steps_init(&steps, t, c->max_batch, c->longest, cfg->chunk, e);
    steps.warm = watch_reset;
    r->kv_bytes = (uint64_t)steps.per_seq * c->max_batch *
                  model_kv_block_bytes(t->model, BENCH_BLOCK, t->kv_dtype);
    for (struct bench_result *v = c->v; v < c->v + c->n && rc == 0; v++) {
        LOG(LOG_INFO, v->of.decode ? "decode" : "prefill", LOGI("tokens", v->of.tokens),
            LOGI("batch", v->of.batch), LOGI("depth", v->of.depth));
        bench_work(t->model, t->kv_dtype, v);
        rc = bench_time(&steps, &v->of, cfg->repeat, &v->s, e);
        if (cfg->ops)
            watch_print(ops);
    }
    bench_memory(&r->rss_bytes, &peak);
    bench_steps_free(&steps);
    return rc ? -1 : measure_limits(r, e);
}

static int print(const struct bench_config *cfg, const struct bench_report *r,
                 const struct cases *c, const struct buf *ops, struct err *e)
{
    struct buf out = BUF_INIT;
    if (cfg->json) {
        bench_print_json(&out, r, c->v, c->n);
    } else {
        bench_print_table(&out, r, c->v, c->n);
        buf_add(&out, ops->p, ops->len);
    }
    int rc = out.oom ? err_nomem(e) : 0;
    if (rc == 0 && fwrite(out.p, 1, out.len, stdout) != out.len)
        rc = err_sys(e, "write");
    buf_free(&out);
    return rc;
}

static int with_model(const struct bench_config *cfg, const struct tool *t, struct cases *c,
                      struct err *e)
{
    const struct model_info *i = model_info(t->model);
    struct bench_report r = {.model = cfg->tool.shape ? cfg->tool.shape : cfg->tool.model,
                             .random = cfg->tool.shape != NULL,
                             .quantize = quant_name(i->quant),
                             .device = t->ops->describe(t->dev),
                             .threads = t->ops->host_threads ? t->ops->host_threads(t->dev) : 1,
                             .dtype = i->dtype,
                             .kv_dtype = t->kv_dtype,
                             .load_s = t->load_s,
                             .weight_bytes = i->weight_bytes,
                             .rounds = cfg->repeat};
    bench_memory(&r.rss_bytes, &r.load_peak_bytes);
    struct buf ops = BUF_INIT;
    int rc = measure(cfg, t, c, &r, &ops, e) || print(cfg, &r, c, &ops, e) ? -1 : 0;
    buf_free(&ops);
    return rc;
}

static int run(const void *config, struct err *e)
{
    const struct bench_config *cfg = config;
    struct tool t = {0};
    struct cases *cases = calloc(1, sizeof(*cases));
    if (!cases)
        return err_nomem(e);
    struct tool_options o = cfg->tool;
    o.watch = cfg->ops ? watch_ops : NULL;
    int rc =
        list_cases(cases, cfg, e) || tool_open(&t, &o, e) || with_model(cfg, &t, cases, e) ? -1 : 0;
    tool_close(&t);
    free(cases);
    return rc;
}

int cmd_bench(int argc, char **argv)
{
    struct bench_config cfg = {0};
    return tool_main(&program, &cfg, &cfg.tool, run, argc, argv);
}
