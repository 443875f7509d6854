#include "launcher/draft.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "launcher/plan/machine.h"
#include "launcher/process/sweep.h"
#include "launcher/restarts.h"

/* Exponential backoff: a process that ends soon is restarted after twice the previous pause; a
 * longer-lived one at once. */
enum { SOON_MS = 10000, FIRST_PAUSE_MS = 250, MOST_PAUSE_MS = 30000, DRAFT_ARENA = 16 << 20 };

/* The served model's options, without those specific to that model. */
void draft_init(struct draft *d, const struct plan *base, struct child *child)
{
    const struct config *c = base->cfg;
    *d = (struct draft){.child = child, .pause_ms = FIRST_PAUSE_MS};
    d->on = c->draft_model_id && !base->first;
    plan_other(base, c->draft_model_id, base->draft_uds_path, base->draft_group, &d->cfg, &d->arena,
               &d->plan);
    d->cfg.quantize = c->draft_quantize;
    d->cfg.dtype = 0;
    d->cfg.activations = c->activations;
    d->cfg.device = c->draft_device ? c->draft_device : c->device;
    d->cfg.num_shard = d->cfg.nnodes = d->cfg.pipeline_parallel_size = 1;
    d->cfg.enable_expert_parallel = false;
    d->cfg.speculate = 0;
    d->cfg.swap_space = d->cfg.kv_offload_memory = 0;
    d->cfg.kv_offload_dir = NULL;
    d->cfg.kv_cache_memory = c->draft_kv_cache_memory;
    d->plan.threads = base->draft_threads;
    arena_init(&d->arena, DRAFT_ARENA);
}

static void try_again(struct draft *d)
{
    bool soon = clock_ms() - d->started < SOON_MS;
    d->pause_ms =
        soon ? restarts_pause(d->pause_ms, FIRST_PAUSE_MS, MOST_PAUSE_MS) : FIRST_PAUSE_MS;
    d->again = clock_ms() + (soon ? d->pause_ms : 0);
    LOG(LOG_WARN, "Draft model will be restarted", LOGI("in_ms", soon ? d->pause_ms : 0));
}

void draft_start(struct draft *d)
{
    struct command cmd;
    struct err e = ERR_INIT;
    if (!d->on)
        return;
    d->again = 0;
    d->started = clock_ms();
    child_free(d->child); /* of the previous run */
    arena_reset(&d->arena);
    arena_init(&d->arena, DRAFT_ARENA);
    LOG(LOG_INFO, "Starting draft model", LOGS("model", d->cfg.model_id));
    if (machine_socket_free(plan_socket(&d->plan, 0), &e) == 0 &&
        plan_shard(&d->plan, 0, &cmd, &e) == 0 && child_start(d->child, "draft", &cmd, &e) == 0)
        return;
    log_msg(LOG_ERROR, "Draft model cannot start: %s", e.msg);
    try_again(d);
}

void draft_lost(struct draft *d)
{
    char cause[400];
    if (!d->on)
        return;
    child_cause(d->child, cause, sizeof(cause));
    log_msg(LOG_ERROR, "Draft model ended: %s", cause);
    try_again(d);
}

int64_t draft_deadline(const struct draft *d) { return d->on ? d->again : 0; }

void draft_late(struct draft *d, int64_t now)
{
    if (d->on && d->again && now >= d->again)
        draft_start(d);
}

void draft_stop(struct draft *d) { d->on = false; }

void draft_free(struct draft *d)
{
    if (d->cfg.draft_model_id)
        sweep_shards(&d->plan);
    arena_reset(&d->arena);
}
