/* dry_run.h - the memory plan of a rank, computed before its weights are loaded, and its JSON form
 * for `launcher --dry-run`. */
#ifndef MODEL_SERVER_DRY_RUN_H
#define MODEL_SERVER_DRY_RUN_H
#include "model-server/engine/engine.h"
#include "model-server/model/model.h"
#include <stdio.h>

struct dry_run {
    const struct engine *engine; /* of a measured model (model_options.measure) */
    const struct model_info *model;
    uint32_t rank, world;
    const char *device;
    enum kv_dtype kv_dtype;
    uint32_t max_input_tokens, max_total_tokens, max_prefill_tokens, max_batch_size; /* 0: open */
};

/* Computes the plan. -1: `e`. */
int dry_run_plan(const struct dry_run *o, struct engine_plan *p, struct err *e);
/* Prints the plan as one line of JSON. 0: it fits; 1: it does not fit; -1: `e`. */
int dry_run_print(const struct dry_run *o, FILE *out, struct err *e);
#endif
