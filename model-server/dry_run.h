/* dry_run.h - what a rank would take: before it loads its weights, and as one JSON object, which
 * `launcher --dry-run` reads. */
#ifndef MODEL_SERVER_DRY_RUN_H
#define MODEL_SERVER_DRY_RUN_H
#include "model-server/engine/engine.h"
#include "model-server/model/model.h"
#include <stdio.h>

struct dry_run {
    const struct engine *engine; /* of a model that was only measured */
    const struct model_info *model;
    uint32_t rank, world;
    const char *device;
    enum kv_dtype kv_dtype;
    uint32_t max_input_tokens, max_total_tokens, max_prefill_tokens, max_batch_size; /* 0: open */
};

int dry_run_plan(const struct dry_run *o, struct engine_plan *p, struct err *e);
/* 0: it fits; 1: it does not, as the object says; -1: `e`. One line. */
int dry_run_print(const struct dry_run *o, FILE *out, struct err *e);
#endif
