/* engine_impl.h - private to engine.c (batches and steps), warmup.c (memory at start) and plan.c
 * (the same without allocation). */
#ifndef MODEL_SERVER_ENGINE_ENGINE_IMPL_H
#define MODEL_SERVER_ENGINE_ENGINE_IMPL_H
#include "model-server/engine/engine.h"
#include "model-server/engine/kv_pool.h"
#include "model-server/engine/state_cells.h"
#include "model-server/engine/step/drafts.h"
#include <string.h>

enum {
    DEFAULT_PREFILL = 4096, /* tokens, until warm-up determines the number */
    DRAFT_ROWS = 64,        /* most rows of a step that may be drafts */
};
#define DRAFT_COST 0.0625 /* relative cost of a row, until warm-up has measured it */
#define PASS_COST  0.1    /* the same for a pass of a draft head */

struct engine {
    struct engine_options o;
    struct stepper step;
    struct batches batches;
    struct grammars *grammars;
    struct drafting drafting;
    struct heads heads;
    struct siblings siblings;
    struct state_cells cells;
    struct batch *gone; /* sequences to which the last answer still points */
    uint32_t n_blocks, n_slots, max_prefill, max_chunk;
    uint32_t n_windows; /* blocks of the sliding-window cache; 0: there is none */
    struct batch *next; /* decoded by the last call, and most likely by the next one */
    bool broken;
    /* Image encoding in the current step: the router's limit, and the work that was done. */
    uint64_t encode_most, encode_done;
    int64_t encode_ns;
};

/* After a failed call: a rank is out of step with the others then, for good. */
static inline void engine_note_failure(struct engine *g) { g->broken |= g->o.comm->world > 1; }

/* On CPUs the ranks of a machine share its memory. */
static inline bool engine_in_host_memory(const struct engine *g)
{
    return strcmp(g->o.ops->name, "cpu") == 0;
}
/* Number of ranks that allocate from the memory that this rank sees. */
static inline uint32_t engine_ranks_here(const struct engine *g)
{
    return engine_in_host_memory(g) ? comm_ranks_here(g->o.comm) : 1;
}

/* Used by both warm-up and dry run (plan.c).
 *
 * Most tokens of a request: the requested limit, or else the model's. */
uint32_t warmup_longest(const struct engine *g, const struct warmup *w);
/* Tokens of a text of which `most` fit: a table of an encoder's positions ends, too. */
uint32_t warmup_input(const struct engine *g, uint32_t most);
/* Rows of the largest step: its sequences and their drafts. */
uint32_t warmup_rows(const struct engine *g, const struct warmup *w);
/* -1 if the model does not support requests of this length. */
int warmup_check(const struct engine *g, const struct warmup *w, struct err *e);
/* Pages for adapters on this rank; *all: pages that all adapters need together. */
uint32_t warmup_adapter_pages(const struct engine *g, uint64_t free_bytes, uint64_t *all);
/* Allocates the pool of the adapters on every rank: their size if it fits into their share, or the
 * share if adapters may be loaded later. */
int warmup_reserve_adapters(struct engine *g, struct warmup *w, struct err *e);
/* Number of blocks for keys and values of images, if the model has cross-attention layers; else 0.
 */
uint32_t warmup_shown_blocks(const struct engine *g, const struct warmup *w, uint64_t free_bytes,
                             uint64_t total);
/* Input of kv_plan(), if each rank will still allocate `reserved` of free_bytes. */
struct kv_memory warmup_memory(const struct engine *g, const struct warmup *w, uint64_t free_bytes,
                               uint64_t total, uint64_t reserved);
#endif
