/* engine_impl.h - the engine's insides, for engine.c (batches and steps) and warmup.c (what it may
 * hold) alone. */
#ifndef MODEL_SERVER_ENGINE_ENGINE_IMPL_H
#define MODEL_SERVER_ENGINE_ENGINE_IMPL_H
#include "model-server/engine/drafts.h"
#include "model-server/engine/engine.h"

enum {
    DEFAULT_PREFILL = 4096, /* tokens, before warm-up says how many */
    DRAFT_ROWS = 64,        /* of a step's rows so many are drafts, at most */
};
#define DRAFT_COST 0.0625 /* before warm-up has measured what another row costs */

struct engine {
    struct engine_options o;
    struct stepper step;
    struct batches batches;
    struct grammars *grammars;
    struct drafting drafting;
    struct batch *gone; /* sequences that the last answer still points to */
    uint32_t n_blocks, n_slots, max_prefill, max_chunk;
    struct batch *next; /* was decoded by the last call, and will be by the next */
    bool broken;
};
#endif
