#include "model-server/dry_run.h"
#include "common/buf.h"
#include <string.h>

static void text(struct buf *b, const char *key, const char *value)
{
    buf_fmt(b, "\"%s\":", key);
    buf_json_str(b, value, strlen(value));
    buf_ch(b, ',');
}

static void number(struct buf *b, const char *key, uint64_t value)
{
    buf_fmt(b, "\"%s\":%llu,", key, (unsigned long long)value);
}

/* Requests of the router's warm-up batch: as many prompts as one prefill may hold. */
static uint32_t requests(const struct dry_run *o, uint32_t prefill)
{
    uint32_t longest = o->max_input_tokens ? o->max_input_tokens : prefill, n;
    const uint32_t most = o->model->max_positions > 1 ? o->model->max_positions - 1 : longest;
    longest = longest < most ? longest : most;
    n = (prefill + longest - 1) / longest;
    return o->max_batch_size && o->max_batch_size < n ? o->max_batch_size : n;
}

static void fill(struct buf *b, const struct dry_run *o, const struct engine_plan *p)
{
    const struct model_info *m = o->model;
    buf_ch(b, '{');
    number(b, "rank", o->rank);
    number(b, "world_size", o->world);
    text(b, "device", o->device);
    text(b, "model_type", m->type);
    text(b, "dtype", dtype_name(m->dtype));
    text(b, "stored", m->stored);
    text(b, "quantize", quant_name(m->quant));
    text(b, "activations", arith_name(m->arith));
    text(b, "matrices", m->matrices);
    text(b, "kv_cache_dtype", kv_dtype_name(o->kv_dtype));
    number(b, "first_layer", m->first_layer);
    number(b, "layers", m->layers_here);
    number(b, "layers_of_all", m->n_layers);
    number(b, "total_bytes", p->total);
    number(b, "free_bytes", p->free);
    number(b, "weight_bytes", p->weights);
    number(b, "workspace_bytes", p->workspaces);
    number(b, "tower_bytes", p->pictures);
    number(b, "adapter_bytes", p->adapters);
    number(b, "swap_bytes", p->swap);
    number(b, "kv_bytes", p->kv);
    number(b, "kv_blocks", p->n_blocks);
    number(b, "kv_block_bytes", p->block_bytes);
    number(b, "window_blocks", p->n_windows);
    number(b, "window_block_bytes", p->window_block_bytes);
    number(b, "state_bytes", p->state);
    number(b, "state_cells", p->n_cells);
    number(b, "state_cell_bytes", p->cell_bytes);
    text(b, "kv_decided_by", p->kv_why);
    number(b, "max_input_tokens", p->max_input_tokens);
    number(b, "max_total_tokens", p->max_total_tokens);
    number(b, "max_batch_prefill_tokens", p->max_batch_prefill_tokens);
    number(b, "max_batch_total_tokens", p->max_batch_total_tokens);
    number(b, "largest_total_tokens", p->largest_total_tokens);
    text(b, "why", p->why);
    buf_fmt(b, "\"fits\":%s}\n", *p->why ? "false" : "true");
}

int dry_run_plan(const struct dry_run *o, struct engine_plan *p, struct err *e)
{
    struct warmup w = {.max_input_tokens = o->max_input_tokens,
                       .max_total_tokens = o->max_total_tokens,
                       .max_prefill_tokens = o->max_prefill_tokens,
                       .windows = true};
    w.max_prefill_tokens = w.max_prefill_tokens ? w.max_prefill_tokens : engine_default_prefill();
    w.n = requests(o, w.max_prefill_tokens);
    return engine_plan(o->engine, &w, p, e);
}

int dry_run_print(const struct dry_run *o, FILE *out, struct err *e)
{
    struct engine_plan p;
    struct buf b = BUF_INIT;
    if (dry_run_plan(o, &p, e))
        return -1;
    fill(&b, o, &p);
    int rc = b.oom ? err_nomem(e) : fwrite(b.p, 1, b.len, out) != b.len ? err_sys(e, "stdout") : 0;
    buf_free(&b);
    return rc ? -1 : *p.why != 0;
}
