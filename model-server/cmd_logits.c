/* model-server logits: a model's logits for a prompt, as one JSON object. It distinguishes errors
 * of the model from errors of sampling. */
#include "common/buf.h"
#include "common/cleanup.h"
#include "common/log/log.h"
#include "model-server/commands.h"
#include "model-server/tool.h"
#include <errno.h>
#include <math.h>
#include <string.h>

enum { BLOCK = 16, CHUNK = 64 };

struct logits_config {
    struct tool_options tool;
    struct flag_list ids;
};

// clang-format off
static const struct flag flags[] = {
    TOOL_ROWS(logits_config, tool),
    TOOL_ROW_SHAPE(logits_config, tool),
    {TOOL_ROW(logits_config, tool, "kv-cache-dtype", ENUM, kv_dtype), .def = "float32", .choices = kv_dtype_choices,
     .help = "Type of keys and values in the cache; auto: as the weights are stored."},
    {.name = "ids", .required = true, .type = FLAG_LIST, .off = offsetof(struct logits_config, ids), .env = "",
     .help = "Token ids of the prompt, separated by commas."},
    {0},
};
// clang-format on

static const struct flag_program program = {
    .name = "model-server logits",
    .about = "Prints one JSON object: `ids`, `logprobs` (of each prompt token given those before "
             "it, null "
             "first) and `last_logits` (after the last token, fp32).",
    .flags = flags,
};

/* ---------------------------------------------------------------- the prompt */

struct prompt {
    uint32_t *ids, *pos, *blocks, n;
};

static void prompt_free(struct prompt *p)
{
    free(p->ids);
    free(p->pos);
    free(p->blocks);
}

static int prompt_parse(struct prompt *p, const struct flag_list *words, struct err *e)
{
    p->ids = calloc(words->n + 1, sizeof(uint32_t));
    p->pos = calloc(words->n + 1, sizeof(uint32_t));
    p->blocks = calloc(words->n / BLOCK + 1, sizeof(uint32_t));
    if (!p->ids || !p->pos || !p->blocks)
        return err_nomem(e);
    for (uint32_t i = 0; i < words->n; i++) {
        char *end;
        unsigned long v = strtoul(words->v[i], &end, 10);
        if (end == words->v[i] || *end || v > UINT32_MAX)
            return err_set(e, ERR_VALIDATION, "--ids: `%.40s` is no token id", words->v[i]);
        p->ids[i] = (uint32_t)v;
        p->pos[i] = i;
        p->blocks[i / BLOCK] = i / BLOCK;
    }
    p->n = words->n;
    return p->n ? 0 : err_set(e, ERR_VALIDATION, "--ids: no token ids");
}

/* ---------------------------------------------------------------- the answer */

static double logsumexp(const float *row, uint32_t n)
{
    uint32_t best = 0;
    double sum = 1; /* of exp(x - the largest), which is itself one of them */
    for (uint32_t i = 1; i < n; i++)
        best = row[i] > row[best] ? i : best;
    for (uint32_t i = 0; i < n; i++)
        sum += i == best ? 0 : exp((double)row[i] - row[best]);
    return row[best] + log(sum);
}

static void print_rows(struct buf *out, const struct prompt *p, uint32_t at, uint32_t n,
                       const float *rows, uint32_t vocab)
{
    for (uint32_t i = 0; i < n && at + i + 1 < p->n; i++) {
        const float *row = rows + (size_t)i * vocab;
        buf_ch(out, ',');
        buf_json_f32(out, (float)(row[p->ids[at + i + 1]] - logsumexp(row, vocab)));
    }
    if (at + n < p->n)
        return;
    buf_str(out, "],\"last_logits\":[");
    for (uint32_t k = 0; k < vocab; k++) {
        buf_str(out, k ? "," : "");
        buf_json_f32(out, rows[(size_t)(n - 1) * vocab + k]);
    }
    buf_str(out, "]}\n");
}

/* The prompt is processed in chunks, so that memory is bounded by CHUNK rows of logits. */
static int run_chunks(struct model *m, const struct prompt *p, struct buf *out, struct err *e)
{
    const uint32_t vocab = model_info(m)->vocab;
    uint32_t rows[CHUNK];
    float *logits CLEANUP(cleanup_free) = malloc((size_t)CHUNK * vocab * sizeof(float));
    if (!logits)
        return err_nomem(e);
    for (uint32_t i = 0; i < CHUNK; i++)
        rows[i] = i;
    for (uint32_t at = 0, n; at < p->n; at += n) {
        n = p->n - at < CHUNK ? p->n - at : CHUNK;
        const struct span span = {.n = n, .kv_len = at + n, .blocks = p->blocks, .seq_len = p->n};
        const struct ragged b = {.n_tokens = n,
                                 .n_spans = 1,
                                 .n_out = n,
                                 .ids = p->ids + at,
                                 .pos = p->pos + at,
                                 .slots =
                                     p->pos + at, /* block i is the i-th of the only sequence */
                                 .spans = &span,
                                 .out_rows = rows};
        if (model_forward(m, &b, logits, e))
            return -1;
        print_rows(out, p, at, n, logits, vocab);
    }
    return 0;
}

static int print_all(struct model *m, const struct prompt *p, struct err *e)
{
    struct buf out = BUF_INIT;
    buf_str(&out, "{\"ids\":[");
    for (uint32_t i = 0; i < p->n; i++)
        buf_fmt(&out, "%s%u", i ? "," : "", p->ids[i]);
    buf_str(&out, "],\"logprobs\":[null");
    int rc = run_chunks(m, p, &out, e);
    if (rc == 0 && out.oom)
        rc = err_nomem(e);
    if (rc == 0 && fwrite(out.p, 1, out.len, stdout) != out.len)
        rc = err_sys(e, "write");
    buf_free(&out);
    return rc;
}

/* ---------------------------------------------------------------- the command */

static int run(const void *config, struct err *e)
{
    const struct logits_config *cfg = config;
    struct prompt p = {0};
    struct tool t = {0};
    int rc = prompt_parse(&p, &cfg->ids, e) || tool_open(&t, &cfg->tool, e) ||
                     model_kv_resize(t.model, p.n / BLOCK + 1, BLOCK, t.kv_dtype, e) ||
                     model_state_resize(t.model, 1, e) || print_all(t.model, &p, e)
                 ? -1
                 : 0;
    tool_close(&t);
    prompt_free(&p);
    return rc;
}

int cmd_logits(int argc, char **argv)
{
    struct logits_config cfg = {0};
    return tool_main(&program, &cfg, &cfg.tool, run, argc, argv);
}
