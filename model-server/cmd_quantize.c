/* model-server quantize: writes a model in fewer bits, in a format that other programs read. */
#include "common/log/log.h"
#include "model-server/commands.h"
#include "model-server/quality/compare.h"
#include "model-server/quantize/quantize.h"
#include "model-server/tool.h"
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

struct quantize_config {
    struct tool_options tool; /* model, threads, log_level */
    const char *out, *method, *calibration;
    uint32_t bits, context, tokens;
    const char *group;
    struct flag_list exclude;
    uint32_t layout;
    uint32_t act_order;
    bool symmetric, asymmetric, no_report;
    double damp;
};

static const char *const layouts[] = {"auto", "packed", NULL};
static const char *const orders[] = {
    [GPTQ_STORED] = "off", [GPTQ_STATIC] = "static", [GPTQ_GROUPS] = "group", NULL};

// clang-format off
#define F(field) .off = offsetof(struct quantize_config, field), .env = ""
static const struct flag flags[] = {
    {TOOL_ROW(quantize_config, tool, "model", STR, model), .positional = true, .required = true,
     .help = "Folder with config.json and safetensors weights; for gguf:TYPE a GGUF file as well."},
    {.name = "out", .positional = true, .required = true, .type = FLAG_STR, F(out),
     .help = "The output folder, or with gguf:TYPE the output file. It is written completely or not at all."},
    {.name = "method", .type = FLAG_STR, F(method), .def = "gptq",
     .help = "rtn (round to nearest) and gptq: the layout of GPTQ; awq: that of AWQ; smoothquant: 8 bits as "
             "compressed-tensors; gguf:TYPE, as gguf:Q4_K_M."},
    {.name = "layout", .type = FLAG_ENUM, F(layout), .def = "auto", .choices = layouts,
     .help = "packed: rtn, gptq and awq write compressed-tensors' pack-quantized, which takes matrices of any shape."},
    {.name = "bits", .type = FLAG_U32, F(bits), .def = "0", .max = 8, .unit = "bits",
     .help = "Bits per weight; 0: the method's default, 4 or 8."},
    {.name = "group-size", .type = FLAG_STR, F(group),
     .help = "Columns that share a scale; -1: a whole row. Default: 128, smoothquant -1."},
    {.name = "symmetric", .type = FLAG_BOOL, F(symmetric), .help = "No zero points: the default except for awq."},
    {.name = "asymmetric", .type = FLAG_BOOL, F(asymmetric), .help = "A zero point for each group."},
    {.name = "act-order", .type = FLAG_ENUM, F(act_order), .def = "static", .choices = orders,
     .help = "gptq: static and group round the columns of the largest inputs first; group forms the groups in that "
             "order, too (desc_act, slower to serve)."},
    {.name = "damp", .type = FLAG_F64, F(damp), .def = "0.01", .min = 1e-6, .max = 1,
     .help = "gptq: fraction of the mean diagonal that is added to the second moments (damping)."},
    {.name = "exclude", .type = FLAG_LIST, F(exclude),
     .help = "Matrices whose name contains one of these words are not quantised."},
    {.name = "calibration", .type = FLAG_STR, F(calibration),
     .help = "A file of plain text like what the model will see; without it a text that is shipped. none: "
             "GGUF without weights for errors."},
    {.name = "context", .type = FLAG_U32, F(context), .def = "512", .min = 32, .max = 65536, .unit = "tokens",
     .help = "The text is split into sequences of this many tokens. Every fifth is held out for the report."},
    {.name = "tokens", .type = FLAG_U32, F(tokens), .def = "0", .unit = "tokens",
     .help = "Use only this many tokens of the text; 0: all."},
    {.name = "no-report", .type = FLAG_BOOL, F(no_report),
     .help = "Do not measure perplexity and divergence at the end."},
    {TOOL_ROW(quantize_config, tool, "threads", U32, threads), .def = "0", .min = 0, .max = 256,
     .help = "Worker threads; 0: all allowed cores."},
    {TOOL_ROW(quantize_config, tool, "log-level", ENUM, log_level), .def = "info", .choices = tool_levels,
     .help = "Lines above this level are not logged."},
    {0},
};
// clang-format on

static const struct flag_program program = {
    .name = "model-server quantize",
    .about = "Writes a model in fewer bits: one layer is in memory at a time, and a run that ended "
             "goes on where it was.",
    .flags = flags,
};

static int group_of(const struct quantize_config *c, struct quantize_options *o, struct err *e)
{
    const char *s = c->group;
    uint32_t v = 0;
    if (!s)
        return 0;
    o->row_group = strcmp(s, "-1") == 0;
    if (o->row_group)
        return 0;
    for (; *s >= '0' && *s <= '9' && v <= 65536; s++)
        v = v * 10 + (uint32_t)(*s - '0');
    if (*s || v < 8 || v > 65536 || v % 8)
        return err_set(e, ERR_VALIDATION,
                       "--group-size %.20s: a multiple of 8 up to 65536, or -1 for a row",
                       c->group);
    o->group = v;
    return 0;
}

static void report(const struct quantize_config *c, const struct comparison *k)
{
    printf("%s\nmethod             %s\ntokens             %llu (held out)\n"
           "perplexity before  %.4f\nperplexity after   %.4f\ndivergence         %.4g nats\n"
           "agreement          %.5f (first choice)\n",
           c->out, c->method, (unsigned long long)k->rows, compare_perplexity(k->nll, k->predicted),
           compare_perplexity(k->other_nll, k->predicted), k->divergence / (double)k->rows,
           (double)k->agreed / (double)k->rows);
}

static int run(const void *config, struct err *e)
{
    const struct quantize_config *c = config;
    struct quantize_options o = {.model = c->tool.model,
                                 .out = c->out,
                                 .method = c->method,
                                 .packed = c->layout == 1,
                                 .bits = c->bits,
                                 .symmetric = c->symmetric,
                                 .asymmetric = c->asymmetric,
                                 .order = (enum gptq_order)c->act_order,
                                 .damp = c->damp,
                                 .calibration = c->calibration,
                                 .context = c->context,
                                 .tokens = c->tokens,
                                 .report = !c->no_report,
                                 .exclude = c->exclude.v,
                                 .n_exclude = c->exclude.n};
    const struct device_options d = {
        .threads = (int)c->tool.threads, .features = ~(uint64_t)0, .arith = ARITH_EXACT};
    if (c->symmetric && c->asymmetric)
        return err_set(e, ERR_VALIDATION, "--symmetric and --asymmetric: only one of the two");
    if (group_of(c, &o, e))
        return -1;
    signal(SIGXFSZ, SIG_IGN); /* a file that grows beyond its limit is an error of write() */
    struct device *dev = backend_cpu.open(&d, e);
    if (!dev)
        return -1;
    struct comparison k = {0};
    const int rc = quantize_model(&o, &backend_cpu, dev, &k, e);
    if (rc == 0 && o.report)
        report(c, &k);
    backend_cpu.close(dev);
    return rc;
}

int cmd_quantize(int argc, char **argv)
{
    struct quantize_config cfg = {0};
    return tool_main(&program, &cfg, &cfg.tool, run, argc, argv);
}
