/* engine_impl.h - the engine's insides, for engine.c (batches and steps), warmup.c (what it may
 * hold) and plan.c (what it would hold) alone. */
#ifndef MODEL_SERVER_ENGINE_ENGINE_IMPL_H
#define MODEL_SERVER_ENGINE_ENGINE_IMPL_H
#include "model-server/engine/drafts.h"
#include "model-server/engine/engine.h"
#include "model-server/engine/kv_pool.h"
#include "model-server/engine/state_cells.h"
#include <string.h>

enum {
    DEFAULT_PREFILL = 4096, /* tokens, before warm-up says how many */
    DRAFT_ROWS = 64,        /* of a step's rows so many are drafts, at most */
};
#define DRAFT_COST 0.0625 /* before warm-up has measured what another row costs */
#define PASS_COST  0.1    /* the same of a pass of a draft head */

struct engine {
    struct engine_options o;
    struct stepper step;
    struct batches batches;
    struct grammars *grammars;
    struct drafting drafting;
    struct heads heads;
    struct siblings siblings;
    struct state_cells cells;
    struct batch *gone; /* sequences that the last answer still points to */
    uint32_t n_blocks, n_slots, max_prefill, max_chunk;
    uint32_t n_windows; /* blocks of the cache of windows; 0: there is none */
    struct batch *next; /* was decoded by the last call, and will be by the next */
    bool broken;
    /* Of pictures, in the step at hand: the limit that the router set, and what it came to. */
    uint64_t encode_most, encode_done;
    int64_t encode_ns;
};

/* The ranks of a machine share its memory on a CPU. */
static inline bool engine_in_host_memory(const struct engine *g)
{
    return strcmp(g->o.ops->name, "cpu") == 0;
}
/* Ranks that take from the memory that this one sees. */
static inline uint32_t engine_ranks_here(const struct engine *g)
{
    return engine_in_host_memory(g) ? (uint32_t)(g->o.comm->world / g->o.comm->nodes) : 1;
}

/* What warm-up and a dry run (plan.c) reckon alike.
 *
 * Tokens that one request may come to: as asked for, else what the model knows. */
uint32_t warmup_longest(const struct engine *g, const struct warmup *w);
/* Rows of the largest step: its sequences and their drafts. */
uint32_t warmup_rows(const struct engine *g, const struct warmup *w);
/* Whether the model can have requests so long. */
int warmup_check(const struct engine *g, const struct warmup *w, struct err *e);
/* Pages for adapters on this rank; *all: that all of them take. */
uint32_t warmup_adapter_pages(const struct engine *g, uint64_t free_bytes, uint64_t *all);
/* Do layers that see a window get a cache of their own? The caller of the warm-up has to know of
 * it, and it pays where requests may be several times as long as the window. Not with a swap region
 * or recurrent state. */
bool warmup_windows(const struct engine *g, const struct warmup *w);
/* Blocks of pictures' keys and values, for layers that attend to pictures; 0: there are none. */
uint32_t warmup_shown_blocks(const struct engine *g, const struct warmup *w, uint64_t free_bytes,
                             uint64_t total);
/* What decides on the cache, where `reserved` bytes of each rank are still to be taken from
 * free_bytes. */
struct kv_memory warmup_memory(const struct engine *g, const struct warmup *w, uint64_t free_bytes,
                               uint64_t total, uint64_t reserved);
#endif
