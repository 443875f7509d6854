/* model-server quality: the cost in quality of a cheaper form of a model. One text is processed
 * by the model as stored, in exact arithmetic, and by the same model with the given options; the
 * logits of every position are compared. */
#include "common/buf.h"
#include "common/json/json.h"
#include "common/log/log.h"
#include "common/tokenizer/tokenizer.h"
#include "model-server/commands.h"
#include "model-server/quality/compare.h"
#include "model-server/tool.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 16, CHUNK = 64, TEXT_MAX = 64 << 20 };

struct quality_config {
    struct tool_options tool;
    const char *text;
    uint32_t context, limit;
    bool json;
};

// clang-format off
#define F(field) .off = offsetof(struct quality_config, field), .env = ""
static const struct flag flags[] = {
    TOOL_ROWS(quality_config, tool),
    TOOL_ROW_KV(quality_config, tool),
    {.name = "text", .required = true, .type = FLAG_STR, F(text), .help = "A file of plain text."},
    {.name = "context", .type = FLAG_U32, F(context), .def = "512", .min = 2, .max = 1e6, .unit = "tokens",
     .help = "The text is split into pieces of this many tokens, each predicted from its own start."},
    {.name = "limit", .type = FLAG_U32, F(limit), .def = "0", .unit = "tokens",
     .help = "Use only this many tokens of the text; 0: all."},
    {.name = "json", .type = FLAG_BOOL, F(json), .help = "One JSON object instead of a table."},
    {0},
};
// clang-format on

static const struct flag_program program = {
    .name = "model-server quality",
    .about = "Compares a model under --dtype, --quantize, --activations and --kv-cache-dtype with "
             "the same model as "
             "stored and in exact arithmetic, over a text: perplexity, error of the logits, "
             "agreement of the first choice, divergence.",
    .flags = flags,
};

/* ---------------------------------------------------------------- the text */

static int read_ids(const struct quality_config *c, struct tok_ids *out, struct err *e)
{
    size_t n;
    char *text = file_read(c->text, TEXT_MAX, &n, e);
    struct tokenizer *tok = text ? tokenizer_load(c->tool.model, e) : NULL;
    struct tok_scratch *scratch = NULL;
    int rc = tok ? tokenizer_encode(tok, text, n, TOK_ADD_SPECIAL, &scratch, out, e) : -1;
    if (rc == 0 && out->n < 3)
        rc = err_set(e, ERR_VALIDATION, "%s: %u tokens are no text", c->text, out->n);
    if (rc == 0 && c->limit && c->limit < out->n)
        out->n = c->limit < 3 ? 3 : c->limit;
    tok_scratch_free(scratch);
    tokenizer_free(tok);
    free(text);
    return rc;
}

/* ---------------------------------------------------------------- both models over it */

struct pair {
    struct model *model[2];
    float *logits[2];
    uint32_t *pos, *blocks, rows[CHUNK];
    uint32_t vocab, context;
};

static int pair_init(struct pair *p, const struct tool *t, uint32_t context, struct err *e)
{
    const struct model_info *i = model_info(t[0].model);
    p->vocab = i->vocab;
    p->context = i->max_positions && i->max_positions < context ? i->max_positions : context;
    p->pos = calloc(p->context, sizeof(uint32_t));
    p->blocks = calloc(p->context / BLOCK + 1, sizeof(uint32_t));
    if (!p->pos || !p->blocks)
        return err_nomem(e);
    for (uint32_t k = 0; k < p->context; k++) {
        p->pos[k] = k;
        p->blocks[k / BLOCK] = k / BLOCK;
    }
    for (uint32_t k = 0; k < CHUNK; k++)
        p->rows[k] = k;
    for (int m = 0; m < 2; m++) {
        p->model[m] = t[m].model;
        if (!(p->logits[m] = malloc((size_t)CHUNK * p->vocab * sizeof(float))))
            return err_nomem(e);
        if (model_kv_resize(t[m].model, p->context / BLOCK + 1, BLOCK, t[m].kv_dtype, e) ||
            model_state_resize(t[m].model, 1, e))
            return -1;
    }
    return 0;
}

static void pair_free(struct pair *p)
{
    free(p->pos);
    free(p->blocks);
    free(p->logits[0]);
    free(p->logits[1]);
}

/* Processes ids[0 .. n) from an empty context, in chunks that bound the memory for logits. */
static int run_piece(struct pair *p, const uint32_t *ids, uint32_t n, struct comparison *c,
                     struct err *e)
{
    for (uint32_t at = 0, m; at < n; at += m) {
        m = n - at < CHUNK ? n - at : CHUNK;
        const struct span span = {.n = m, .kv_len = at + m, .blocks = p->blocks, .seq_len = n};
        const struct ragged b = {.n_tokens = m,
                                 .n_spans = 1,
                                 .n_out = m,
                                 .ids = ids + at,
                                 .pos = p->pos + at,
                                 .slots = p->pos + at, /* block i is the i-th of the sequence */
                                 .spans = &span,
                                 .out_rows = p->rows};
        if (model_forward(p->model[0], &b, p->logits[0], e) ||
            model_forward(p->model[1], &b, p->logits[1], e))
            return -1;
        for (uint32_t i = 0; i < m; i++)
            compare_row(c, p->logits[0] + (size_t)i * p->vocab, p->logits[1] + (size_t)i * p->vocab,
                        p->vocab, at + i + 1 < n ? (int64_t)ids[at + i + 1] : NO_NEXT);
    }
    return 0;
}

static int run_text(struct pair *p, const struct tok_ids *ids, struct comparison *c, struct err *e)
{
    for (uint32_t at = 0, n; at < ids->n; at += n) {
        n = ids->n - at < p->context ? ids->n - at : p->context;
        if (run_piece(p, ids->id + at, n, c, e))
            return -1;
        LOG(LOG_INFO, "compared", LOGI("tokens", at + n), LOGI("of", ids->n));
    }
    return 0;
}

/* ---------------------------------------------------------------- the answer */

static void print(const struct quality_config *cfg, const struct tool *t,
                  const struct comparison *c)
{
    const struct model_info *i = model_info(t->model);
    double rows = (double)c->rows, before = compare_perplexity(c->nll, c->predicted);
    double after = compare_perplexity(c->other_nll, c->predicted);
    struct buf name = BUF_INIT;
    buf_json_str(&name, cfg->tool.model, strlen(cfg->tool.model));
    printf(cfg->json
               ? "{\"model\":%s,\"dtype\":\"%s\",\"quantize\":\"%s\",\"activations\":\"%s\",\"kv_"
                 "cache_dtype\":\"%s\","
                 "\"tokens\":%llu,\"weight_bytes\":%llu,\"exact_perplexity\":%.6g,"
                 "\"perplexity\":%.6g,\"relative_error\":%.4g,\"largest_error\":%.4g,"
                 "\"agreement\":%.5f,\"divergence\":%.4g}\n"
               : "model %s\nweights           %s, quantize %s, activations %s, cache %s\ntokens    "
                 "        %llu\n"
                 "weights           %llu bytes\nexact perplexity  %.4f\nperplexity        %.4f\n"
                 "relative error    %.4g (rms of logits)\nlargest error     %.4g\n"
                 "agreement         %.5f (first choice)\ndivergence        %.4g nats\n",
           name.p ? name.p : "\"\"", dtype_name(i->dtype), quant_name(i->quant),
           arith_name(i->arith), kv_dtype_name(t->kv_dtype), (unsigned long long)c->rows,
           (unsigned long long)i->weight_bytes, before, after, compare_error(c), c->largest,
           (double)c->agreed / rows, c->divergence / rows);
    buf_free(&name);
}

static int run(const void *config, struct err *e)
{
    const struct quality_config *cfg = config;
    const struct tool_options exact = {.model = cfg->tool.model,
                                       .device = cfg->tool.device,
                                       .rope_scaling = cfg->tool.rope_scaling,
                                       .rope_factor = cfg->tool.rope_factor,
                                       .threads = cfg->tool.threads,
                                       .activations = ACTIVATIONS_EXACT,
                                       .kv_dtype = 1 + KV_F32};
    struct tool t[2] = {0};
    struct pair p = {0};
    struct tok_ids ids = {0};
    struct comparison c = {0};
    int rc = tool_open(&t[0], &exact, e) || tool_open(&t[1], &cfg->tool, e) ||
                     read_ids(cfg, &ids, e) || pair_init(&p, t, cfg->context, e) ||
                     run_text(&p, &ids, &c, e)
                 ? -1
                 : 0;
    if (rc == 0)
        print(cfg, &t[1], &c);
    pair_free(&p);
    tok_ids_free(&ids);
    tool_close(&t[1]);
    tool_close(&t[0]);
    return rc;
}

int cmd_quality(int argc, char **argv)
{
    struct quality_config cfg = {0};
    return tool_main(&program, &cfg, &cfg.tool, run, argc, argv);
}
