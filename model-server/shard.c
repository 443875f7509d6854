#include "model-server/shard.h"
#include "common/hub/cache.h"
#include "common/log/log.h"
#include "common/process/startup.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ranks of one host share its cores. */
static int worker_threads(const struct serve_config *c, const struct backend_ops *ops)
{
    cpu_set_t set;
    if (c->threads || c->world == 1 || strcmp(ops->name, "cpu") != 0 ||
        sched_getaffinity(0, sizeof(set), &set))
        return (int)c->threads;
    int cores = CPU_COUNT(&set) / (int)(c->world / c->nnodes);
    return cores ? cores : 1;
}

/* ---------------------------------------------------------------- ranks */

static int join(struct shard *s, const struct serve_config *c,
                void (*lost)(void *arg, bool over, const char *why), void *arg, struct err *e)
{
    s->ranks = (struct ranks_options){.uds_path = c->uds_path,
                                      .group = c->shard_group,
                                      .rank = c->rank,
                                      .world = c->world,
                                      .nodes = c->nnodes,
                                      .master_addr = c->master_addr,
                                      .master_port = c->master_port,
                                      .cluster = &s->cluster,
                                      .timeout_s = c->rendezvous_s};
    if (!(s->comm = ranks_join(&s->ranks, e)) ||
        ranks_split(s->comm, c->stages, &s->stage, &s->across, e))
        return -1;
    if (!(s->addresses = calloc(c->world, sizeof(*s->addresses))))
        return err_nomem(e);
    for (uint32_t r = 0; r < c->world; r++) {
        char address[RANKS_ADDRESS];
        ranks_address(&s->ranks, s->comm, r, address);
        if (!(s->addresses[r] = strdup(address)))
            return err_nomem(e);
    }
    s->watch = ranks_watch(&s->ranks, s->comm, lost, arg, e);
    return c->nnodes > 1 && !s->watch ? -1 : 0;
}

/* Replaces join(): the numbers of a rank, without other ranks. */
static void stand_alone(struct shard *s, const struct serve_config *c)
{
    ranks_stand_alone(&s->alone, c->rank, c->world, c->nnodes, c->stages);
    s->comm = s->stage = &s->alone.all;
    if (c->stages > 1)
        s->stage = &s->alone.stage, s->across = &s->alone.across;
}

/* ---------------------------------------------------------------- model */

static void phase(const struct shard *s, enum startup_phase p)
{
    startup_begin(s->startup, s->rank, p);
}

static void on_progress(void *arg, uint64_t done, uint64_t total)
{
    const struct shard *s = arg;
    startup_progress(s->startup, s->rank, done, total);
}

/* A process that serves or connects over TCP logs its authentication and encryption. */
static int load_cluster(struct shard *s, const struct serve_config *c, struct err *e)
{
    if (cluster_load(&s->cluster, &c->cluster, e))
        return -1;
    if (c->nnodes > 1 || !strncmp(c->uds_path, "tcp://", 6))
        cluster_announce(&s->cluster);
    if (c->nnodes > 1 && s->cluster.kind != CLUSTER_OPEN && s->ops && strcmp(s->ops->name, "cpu"))
        log_msg(LOG_WARN,
                "What NCCL sends between machines is neither authenticated nor encrypted");
    return 0;
}

static int64_t id_of(const void *tokenizer, const char *token)
{
    return tokenizer_id(tokenizer, token);
}

static enum kv_dtype kv_dtype(const struct shard *s, const struct serve_config *c)
{
    return c->kv_dtype ? kv_dtype_chosen(c->kv_dtype) : model_kv_dtype(s->model);
}

/* The part of the model that a rank has: its caches of KV and of weights depend on it. */
enum { RANK_WORDS = 64 };
static const char *rank_words(const struct serve_config *c, char out[RANK_WORDS])
{
    snprintf(out, RANK_WORDS, "%u of %u in %u%s", c->rank, c->world, c->stages,
             c->expert_parallel ? " experts" : "");
    return out;
}

/* Identifies the model's files when first needed, and keeps the result: the caches of weights and
 * of KV, and other shards, refer to the same. NULL: they cannot be read. */
static const struct model_identity *files_of(struct shard *s, struct err *e)
{
    if (!s->identified && model_identity(s->dir, &s->files, e))
        return NULL;
    s->identified = true;
    return &s->files;
}

/* The inputs of a cache besides the files, in words. */
static int open_below(struct shard *s, const struct serve_config *c, struct err *e)
{
    const struct model_info *m = model_info(s->model);
    const struct model_identity *files;
    char words[512], rank[RANK_WORDS];
    if (m->task != TASK_GENERATE || !kv_below_memory(&c->below))
        return 0;
    if (!(files = files_of(s, e)))
        return err_wrap(e, "the identity of KV blocks");
    snprintf(words, sizeof(words), "%s %s %s %s %s %s %s %.17g %d rank %s", VERSION, s->ops->name,
             s->words.products, dtype_name(m->dtype), quant_name(m->quant), arith_name(m->arith),
             c->rope_scaling ? c->rope_scaling : "-", c->rope_factor, (int)kv_dtype(s, c),
             rank_words(c, rank));
    return kv_below_open(&s->below, &c->below, files, words, &s->cluster, e);
}

/* For this rank, model and types. */
static void open_packed(struct shard *s, const struct serve_config *c)
{
    char words[256], rank[RANK_WORDS];
    const bool drafts = c->speculate > 0, heads = drafts && c->draft_heads && *c->draft_heads;
    struct err unknown = ERR_INIT;
    const struct model_identity *files;
    if (!c->packed_cache || !*c->packed_cache || c->dry_run)
        return;
    if (!(files = files_of(s, &unknown))) {
        LOG(LOG_WARN, "--packed-cache is not used", LOGS("why", unknown.msg));
        return;
    }
    snprintf(words, sizeof(words),
             "dtype %u quantize %s activations %u task %u pooling %u cut %u drafts %d %s", c->dtype,
             quant_name(c->quant), c->activations, c->task, c->pooling, c->cutoff_layer, drafts,
             rank_words(c, rank));
    const struct packed_options o = {.dir = c->packed_cache,
                                     .most_bytes = (uint64_t)(c->packed_size * (double)(1 << 30)),
                                     .model = s->dir,
                                     .files = files,
                                     .heads = heads ? c->draft_heads : NULL,
                                     .words = words,
                                     .ops = s->ops,
                                     .dev = s->dev};
    s->packed = packed_open(&o);
}

/* Most tokens of a prompt, until the warm-up says it. */
static uint32_t longest_input(const struct serve_config *c)
{
    return c->max_input_tokens     ? c->max_input_tokens
           : c->max_prefill_tokens ? c->max_prefill_tokens
                                   : engine_default_prefill();
}

static int open_weights(struct shard *s, const struct serve_config *c, struct err *e)
{
    struct model_options m = {.ops = s->ops,
                              .dev = s->dev,
                              .comm = s->stage,
                              .stages = s->across,
                              .expert_parallel = c->expert_parallel,
                              .dtype = (int)c->dtype - 1,
                              .quant = c->quant,
                              .activations = c->activations,
                              .quantize = c->quantize,
                              .rope_scaling = c->rope_scaling,
                              .rope_factor = c->rope_factor,
                              .adapters = s->adapters.v,
                              .n_adapters = s->adapters.n,
                              .extra_adapters = c->runtime_adapters,
                              .draft_heads = c->speculate > 0,
                              .draft_dir =
                                  c->draft_heads && *c->draft_heads ? c->draft_heads : NULL,
                              .task = (enum model_task)c->task,
                              .pooling = c->pooling,
                              .cutoff_layer = c->cutoff_layer,
                              .id_of = id_of,
                              .vocabulary = s->tok,
                              .measure = c->dry_run,
                              .progress = on_progress,
                              .progress_arg = s,
                              .busy_ns = &s->busy_ns};
    phase(s, STARTUP_WEIGHTS);
    open_packed(s, c);
    m.packed = s->packed;
    return (s->model = model_load(s->dir, &m, e)) ? 0 : -1;
}

static int open_images(struct shard *s, const struct serve_config *c, struct err *e)
{
    const struct image_input_options images = {.dir = s->dir,
                                               .tok = s->tok,
                                               .model = s->model,
                                               .ops = s->ops,
                                               .dev = s->dev,
                                               .measure = c->dry_run,
                                               .most_ids = longest_input(c)};
    return image_input_open(&s->images, &images, e);
}

static int open_engine(struct shard *s, const struct serve_config *c, struct err *e)
{
    phase(s, STARTUP_WARM_UP);
    struct engine_options g = {.model = s->model,
                               .tok = s->tok,
                               .ops = s->ops,
                               .dev = s->dev,
                               .comm = s->comm,
                               .block_size = BLOCK_SIZE,
                               .kv_dtype = kv_dtype(s, c),
                               .pictures = s->images.pictures,
                               .memory_fraction = c->memory_fraction,
                               .kv_limit = c->kv_memory,
                               .adapter_fraction = c->adapter_fraction,
                               .max_total_tokens = c->max_total_tokens,
                               .speculate = c->speculate,
                               .row_cost = c->row_cost,
                               .swap_bytes = (uint64_t)(c->swap_gib * (double)(1 << 30)),
                               .offload_bytes = kv_below_memory(&c->below),
                               .constraint_bytes =
                                   (uint64_t)(c->constraint_gib * (double)(1 << 30))};
    return (s->engine = engine_new(&g, e)) ? 0 : -1;
}

/* For a dry run only the sizes. */
static int open_model(struct shard *s, const struct serve_config *c, struct err *e)
{
    return open_weights(s, c, e) || open_images(s, c, e) || open_engine(s, c, e) ? -1 : 0;
}

struct dry_run shard_plan(const struct shard *s, const struct serve_config *c)
{
    return (struct dry_run){.engine = s->engine,
                            .model = model_info(s->model),
                            .rank = c->rank,
                            .world = c->world,
                            .device = s->ops->name,
                            .kv_dtype = kv_dtype(s, c),
                            .max_input_tokens = c->max_input_tokens,
                            .max_total_tokens = c->max_total_tokens,
                            .max_prefill_tokens = c->max_prefill_tokens,
                            .max_batch_size = c->max_batch_size};
}

/* Refuses what warm-up would refuse before weights are read, and before any rank has allocated
 * memory that another one counts as free. A model that cannot be measured gives its error when it
 * loads. */
static int check_memory(const struct shard *s, const struct serve_config *c, struct err *e)
{
    struct serve_config dry = *c;
    struct shard m = {.dir = s->dir,
                      .adapters = s->adapters,
                      .rank = s->rank,
                      .ops = s->ops,
                      .dev = s->dev,
                      .tok = s->tok};
    struct engine_plan p = {.n_blocks = 0};
    struct err unknown = ERR_INIT;
    dry.dry_run = true;
    stand_alone(&m, &dry);
    int rc = open_model(&m, &dry, &unknown);
    struct dry_run o = {0};
    if (rc == 0) {
        o = shard_plan(&m, &dry);
        rc = dry_run_plan(&o, &p, &unknown);
    }
    if (rc)
        LOG(LOG_DEBUG, "memory cannot be planned", LOGS("error", unknown.msg));
    engine_free(m.engine);
    image_input_close(&m.images);
    model_free(m.model);
    return *p.why ? err_set(e, ERR_VALIDATION, "%s", p.why) : 0;
}

/* The folders that a load reads. Files that are replaced meanwhile would be mixed, and the identity
 * would be of the new ones: so other ranks with other files would not be told apart. */
struct reading {
    const char *dir[2]; /* the model's, that of the draft heads; NULL: no such one */
    bool known[2];
    struct model_identity before[2];
};

static void begin_reading(struct reading *r, const struct shard *s, const struct serve_config *c)
{
    *r = (struct reading){
        .dir = {s->dir, c->draft_heads && *c->draft_heads ? c->draft_heads : NULL}};
    for (int i = 0; i < 2; i++) {
        struct err unknown = ERR_INIT; /* the load reports what cannot be read */
        r->known[i] = r->dir[i] && model_stamp(r->dir[i], &r->before[i], &unknown) == 0;
    }
}

static int end_reading(const struct reading *r, struct err *e)
{
    for (int i = 0; i < 2; i++)
        if (r->known[i] && model_stamp_check(r->dir[i], &r->before[i], e))
            return -1;
    return 0;
}

int shard_load(struct shard *s, const struct serve_config *c,
               void (*lost)(void *arg, bool over, const char *why), void *arg, struct err *e)
{
    struct reading reading;
    s->rank = c->rank;
    if (c->startup_fd && !(s->startup = startup_board_map((int)c->startup_fd, e)))
        return -1;
    phase(s, STARTUP_CONFIG);
    if (!(s->dir = hub_resolve_model(c->model_id, c->revision, c->mmproj, e)) ||
        adapter_list_read(&s->adapters, &c->lora_adapters, c->skip_missing_adapters, e) ||
        adapter_list_inside(&s->adapters, s->dir, e) || !(s->ops = backend_find(c->device, e)) ||
        load_cluster(s, c, e))
        return -1;
    begin_reading(&reading, s, c);
    phase(s, STARTUP_TOKENIZER);
    if (!(s->tok = tokenizer_load_lazily(s->dir, e)))
        return -1;
    phase(s, STARTUP_RENDEZVOUS);
    struct device_options d = {.index = (int)(c->rank % (c->world / c->nnodes)),
                               .threads = worker_threads(c, s->ops),
                               .features = ~(uint64_t)0,
                               .arith = activations_plain(c->activations, (int)c->dtype - 1)};
    if (!(s->dev = s->ops->open(&d, e)))
        return -1;
    if (c->dry_run) {
        stand_alone(s, c);
        return open_model(s, c, e);
    }
    if (check_memory(s, c, e) || join(s, c, lost, arg, e) || open_model(s, c, e))
        return -1;
    options_words(c, kv_dtype(s, c), &s->words);
    s->ops->arithmetic(s->dev, kv_dtype(s, c), model_info(s->model)->rounds, s->words.products,
                       sizeof(s->words.products));
    if (open_below(s, c, e))
        return -1;
    struct err unknown = ERR_INIT;
    if (!files_of(s, &unknown)) /* most of them are in the page cache now */
        LOG(LOG_WARN, "the checkpoint has no identity", LOGS("error", unknown.msg));
    return end_reading(&reading, e);
}

void shard_close(struct shard *s)
{
    engine_free(s->engine);
    kv_below_close(&s->below);
    image_input_close(&s->images);
    tokenizer_free(s->tok);
    packed_close(s->packed);
    model_free(s->model);
    if (s->dev)
        s->ops->close(s->dev);
    ranks_part(s->comm, s->stage, s->across);
    comm_close(s->comm);
    for (uint32_t r = 0; s->addresses && r < s->ranks.world; r++)
        free(s->addresses[r]);
    free(s->addresses);
    adapter_list_free(&s->adapters);
    cluster_free(&s->cluster);
    free(s->dir);
    startup_board_free(s->startup);
}
