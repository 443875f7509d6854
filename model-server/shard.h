/* shard.h - one rank of a model: everything that is opened from its options to its engine.
 *
 * Members are opened in order by shard_load() and closed in reverse by shard_close(). */
#ifndef MODEL_SERVER_SHARD_H
#define MODEL_SERVER_SHARD_H
#include "model-server/adapter_list.h"
#include "model-server/dry_run.h"
#include "model-server/image_input.h"
#include "model-server/options_words.h"
#include "model-server/packed/packed.h"
#include "model-server/ranks.h"
#include "model-server/serve_config.h"
#include <stdatomic.h>

struct shard { /* zero-initialise */
    char *dir; /* of the model */
    struct cluster cluster;
    struct ranks_options ranks;
    struct adapter_list adapters;
    struct startup_board *startup; /* NULL: none */
    uint32_t rank;
    struct comm *comm;           /* of all ranks */
    struct comm *stage, *across; /* its parts: see ranks_split() */
    struct ranks_alone alone;    /* of a dry run */
    struct ranks_watch *watch;
    char **addresses; /* [world] */
    const struct backend_ops *ops;
    struct device *dev;
    struct packed *packed; /* NULL: packed weights are not cached */
    struct model *model;
    struct image_input images;
    struct tokenizer *tok;
    struct engine *engine;
    struct kv_below below;
    struct options_words words;
    bool identified;             /* `files` is known: the identity of the model's files */
    struct model_identity files; /* zero: not known */
    _Atomic int64_t busy_ns;     /* for the watchdog: start of the engine thread's current work */
};

/* Loads the model and joins the other ranks; with c->dry_run it measures the model and joins none.
 * Before it reads weights it checks that their memory, workspaces and a KV cache fit. lost(arg,
 * over, why): see ranks_watch(). The caller calls shard_close() even after an error. */
int shard_load(struct shard *s, const struct serve_config *c,
               void (*lost)(void *arg, bool over, const char *why), void *arg, struct err *e);
/* The memory plan of a loaded shard. Valid as long as `s`. */
struct dry_run shard_plan(const struct shard *s, const struct serve_config *c);
void shard_close(struct shard *s);
#endif
