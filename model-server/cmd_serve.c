/* model-server serve: one rank, from its flags to the last answer. */
#include "common/cleanup.h"
#include "common/cluster.h"
#include "common/exit_code.h"
#include "common/flag.h"
#include "common/heartbeat.h"
#include "common/hub/cache.h"
#include "common/log.h"
#include "common/options.h"
#include "common/rpc_loop.h"
#include "common/stacks.h"
#include "common/trace.h"
#include "common/watchdog.h"
#include "model-server/adapter_list.h"
#include "model-server/commands.h"
#include "model-server/dry_run.h"
#include "model-server/engine/drafts.h"
#include "model-server/image_input.h"
#include "model-server/kv_below.h"
#include "model-server/packed/packed.h"
#include "model-server/ranks.h"
#include "model-server/service.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK_SIZE = 16 };

struct serve_config {
    const char *model_id, *revision, *uds_path, *device, *quantize, *shard_group, *rope_scaling;
    const char *otlp_endpoint, *otlp_service_name, *master_addr, *draft_heads, *packed_cache;
    struct kv_below_options below;
    struct cluster_options cluster;
    struct flag_list lora_adapters;
    uint32_t dtype, activations, kv_dtype, threads, logger_level, max_input_tokens,
        max_total_tokens, speculate;
    uint32_t startup_fd, watchdog_s, stall_s, heartbeat_fd;
    uint32_t rank, world, nnodes, master_port, rendezvous_s, max_prefill_tokens, max_batch_size;
    uint32_t runtime_adapters, task, stages;
    enum quant quant; /* what `quantize` says */
    double rope_factor, row_cost, memory_fraction, adapter_fraction, kv_memory, swap_gib,
        packed_size, watermark_gamma, watermark_delta;
    bool expert_parallel, sharded, json_output, trust_remote_code, prefill_logprobs, dry_run;
};

static const char *const dtypes[] = {"auto", "float32", "float16", "bfloat16", NULL};
static const char *const levels[] = {"error", "warn", "info", "debug", "trace", "off", NULL};

// clang-format off
#define F(field) .off = offsetof(struct serve_config, field)
static const struct flag flags[] = {
    {.name = "model-id", .positional = true, .required = true, .type = FLAG_STR, F(model_id),
     .help = "A folder with config.json, tokenizer.json and safetensors weights, a GGUF file (or a folder with one), "
             "or a repository in the Hugging Face cache."},
    {.name = "revision", .type = FLAG_STR, F(revision), .help = "Branch, tag or commit in the cache; default: main."},
    {.name = "task", .type = FLAG_ENUM, F(task), .def = "auto", .choices = model_task_choices, .env = "MODEL_TASK",
     .help = "Task of the model: generate, embed (vectors), rerank (scores of pairs); auto: detected from its files. A "
             "decoder supports all of them."},
    {.name = "uds-path", .type = FLAG_STR, F(uds_path), .def = "/tmp/text-generation-server", .env = "",
     .help = "Rank r listens on the Unix socket PATH-r. tcp://host:port listens on port + r instead."},
    {.name = "sharded", .type = FLAG_BOOL, F(sharded), .env = "",
     .help = "Run as one of WORLD_SIZE ranks; RANK and WORLD_SIZE must be set."},
    {.name = "rank", .type = FLAG_U32, F(rank), .def = "0", .help = "Number of this rank, from 0."},
    {.name = "world-size", .type = FLAG_U32, F(world), .def = "1", .min = 1, .max = 1024,
     .help = "Number of ranks the model is split over."},
    {.name = "shard-group", .type = FLAG_STR, F(shard_group),
     .help = "Name by which the ranks find each other, unique on the host; default: derived from --uds-path."},
    {OPTION_PIPELINE_PARALLEL_SIZE, F(stages)},
    {OPTION_ENABLE_EXPERT_PARALLEL, F(expert_parallel)},
    {OPTION_NNODES, F(nnodes)},
    {OPTION_MASTER_ADDR, F(master_addr)},
    {.name = "master-port", .type = FLAG_U32, F(master_port), .def = "29500", .min = 1, .max = 65535,
     .help = "Port of --master-addr. Rank r on a machine other than rank 0's listens for the router on this port + 1 + r."},
    {OPTION_RENDEZVOUS_TIMEOUT, F(rendezvous_s)},
    {OPTION_CLUSTER_CERT, F(cluster.cert)},
    {OPTION_CLUSTER_KEY, F(cluster.key)},
    {OPTION_CLUSTER_CA, F(cluster.ca)},
    {OPTION_CLUSTER_SECRET_FILE, F(cluster.secret_file)},
    {.name = "dtype", .type = FLAG_ENUM, F(dtype), .def = "auto", .choices = dtypes, .env = "",
     .help = "Type of the weights on the device; auto: as stored in the checkpoint, with computation in fp32. With an "
             "explicit float16 or bfloat16 the CPU may also compute in that type, if that is faster."},
    {OPTION_ACTIVATIONS, F(activations)},
    {.name = "kv-cache-dtype", .type = FLAG_ENUM, F(kv_dtype), .def = "auto", .choices = kv_dtype_choices, .env = "",
     .help = "Type of keys and values in the cache; auto: as the weights are stored."},
    {.name = "quantize", .type = FLAG_STR, F(quantize), .env = "",
     .help = "Quantise the linear layers at load: eetq (8-bit weights), w8a8 (8-bit weights and activations), int4 or "
             "fp8. For a quantised checkpoint gptq, awq, marlin, fp8, compressed-tensors and bitsandbytes mean its "
             "stored format, which is also the default. Other schemes are not supported."},
    {.name = "device", .type = FLAG_STR, F(device), .def = "auto",
     .help = "Backend: cpu, cuda, or auto: a GPU if available."},
    {.name = "threads", .type = FLAG_U32, F(threads), .def = "0", .min = 0, .max = 1024,
     .help = "Worker threads of the CPU backend; 0: the allowed cores divided by the number of ranks."},
    {OPTION_KV_CACHE_MEMORY, F(kv_memory)},
    {OPTION_SWAP_SPACE, F(swap_gib)},
    {OPTION_KV_OFFLOAD_DIR, F(below.dir)},
    {OPTION_KV_OFFLOAD_SIZE, F(below.dir_gib)},
    {OPTION_KV_OFFLOAD_MEMORY, F(below.memory_gib)},
    {OPTION_KV_TRANSFER_ADDRESS, F(below.address)},
    {OPTION_PACKED_CACHE, F(packed_cache)},
    {OPTION_PACKED_CACHE_SIZE, F(packed_size)},
    {OPTION_CUDA_MEMORY_FRACTION, F(memory_fraction)},
    {.name = "max-input-tokens", .type = FLAG_U32, F(max_input_tokens), .env = "", .unit = "tokens",
     .help = "For the memory plan before the load; the router sets it at warm-up."},
    {.name = "max-total-tokens", .type = FLAG_U32, F(max_total_tokens), .unit = "tokens",
     .help = "Maximum sequence length including the prompt, if the router does not set it."},
    {.name = "rope-scaling", .type = FLAG_STR, F(rope_scaling),
     .help = "linear or dynamic: replaces the scaling of config.json."},
    {.name = "rope-factor", .type = FLAG_F64, F(rope_factor), .def = "1", .help = "Factor of --rope-scaling."},
    {.name = "prefill-logprobs", .type = FLAG_BOOL, F(prefill_logprobs), .def = "true", .env = "REQUEST_LOGPROBS",
     .help = "Compute the log-probabilities of prompt tokens for requests that need them."},
    {.name = "watermark-gamma", .type = FLAG_F64, F(watermark_gamma), .def = "0.5", .min = 0, .max = 1,
     .help = "Fraction of the vocabulary that a watermark favours."},
    {.name = "watermark-delta", .type = FLAG_F64, F(watermark_delta), .def = "2.0", .min = -100, .max = 100,
     .help = "Bias that a watermark adds to the logits of favoured tokens."},
    {OPTION_LORA_ADAPTERS, F(lora_adapters)},
    {OPTION_MAX_RUNTIME_ADAPTERS, F(runtime_adapters)},
    {OPTION_ADAPTER_MEMORY_FRACTION, F(adapter_fraction)},
    {.name = "speculate", .type = FLAG_U32, F(speculate), .def = "0", .env = "",
     .help = "Speculative decoding: maximum number of draft tokens verified per request and step; fewer are used if "
             "that is faster. Drafts come from n-grams of the text, from draft heads of the checkpoint (multi-token "
             "prediction) or from the router's draft model. Answers do not change."},
    {.name = "draft-heads", .type = FLAG_STR, F(draft_heads), .env = "DRAFT_HEADS",
     .help = "With --speculate: a folder of draft heads for this model (Medusa, EAGLE, EAGLE-3). Default: those of the checkpoint, if any."},
    {.name = "speculate-row-cost", .type = FLAG_F64, F(row_cost), .min = 0, .max = 1, .env = "SPECULATE_ROW_COST",
     .help = "Cost of verifying one more draft token, as a fraction of a step of one token; limits the number of "
             "drafts. Default: measured at warm-up."},
    {OPTION_WATCHDOG_SECONDS, F(watchdog_s)},
    {OPTION_STALL_TIMEOUT, F(stall_s)},
    {.name = "heartbeat-fd", .type = FLAG_U32, F(heartbeat_fd),
     .help = "eventfd for the heartbeats of this process; set by the launcher."},
    {.name = "logger-level", .type = FLAG_ENUM, F(logger_level), .def = "info", .choices = levels, .env = "",
     .help = "Lines above this level are not logged."},
    {.name = "json-output", .type = FLAG_BOOL, F(json_output), .env = "", .help = "Log JSON objects instead of text."},
    {OPTION_TRUST_REMOTE_CODE, F(trust_remote_code), .env = ""},
    {.name = "startup-fd", .type = FLAG_U32, F(startup_fd), .env = "",
     .help = "Shared memory for the start progress; set by the launcher."},
    {.name = "dry-run", .type = FLAG_BOOL, F(dry_run), .env = "",
     .help = "Print as JSON the memory this rank would need and whether it fits, and exit. Checks every tensor and "
             "packs a few rows of each, but keeps no weights and does not wait for other ranks. Exit status: 0 it "
             "fits, 78 it does not, another one: unknown."},
    {OPTION_MAX_BATCH_PREFILL_TOKENS, F(max_prefill_tokens), .env = ""},
    {.name = "max-batch-size", .type = FLAG_U32, F(max_batch_size), .unit = "requests",
     .help = "For the memory plan before the load; the router sets it at warm-up."},
    {OPTION_OTLP_ENDPOINT, F(otlp_endpoint), .env = ""},
    {.name = "otlp-service-name", .type = FLAG_STR, F(otlp_service_name), .env = "",
     .def = "text-generation-inference.server", .help = "Attribute service.name of the spans."},
    {0},
};
// clang-format on

static const struct flag_program program = {
    .name = "model-server serve",
    .about = "Loads one rank of a model and answers the router (gRPC, generate.v3 and v2).",
    .flags = flags,
};

/* ---------------------------------------------------------------- what the flags mean together */

static int check(struct serve_config *c, int argc, char **argv, struct err *e)
{
    if (c->sharded && !flags_given(&program, "rank", argc, argv, environ))
        return err_set(e, ERR_VALIDATION, "RANK must be set when sharded is True");
    if (c->sharded && !flags_given(&program, "world-size", argc, argv, environ))
        return err_set(e, ERR_VALIDATION, "WORLD_SIZE must be set when sharded is True");
    if (c->rank >= c->world)
        return err_set(e, ERR_VALIDATION, "RANK %u is not below WORLD_SIZE %u", c->rank, c->world);
    if (c->world % c->nnodes)
        return err_set(e, ERR_VALIDATION, "%u ranks cannot be spread evenly over %u machines",
                       c->world, c->nnodes);
    if (c->world % c->stages)
        return err_set(e, ERR_VALIDATION,
                       "WORLD_SIZE %u is no multiple of --pipeline-parallel-size %u", c->world,
                       c->stages);
    if (kv_below_check(&c->below, cluster_kind_of(&c->cluster), c->world, e))
        return -1;
    if (c->nnodes > 1 && c->master_port + c->world > 65535)
        return err_set(e, ERR_VALIDATION, "--master-port %u: %u ports are needed above it",
                       c->master_port, c->world);
    const enum cluster_kind kind = cluster_kind_of(&c->cluster);
    if (cluster_flags_check(&c->cluster, e) ||
        (c->nnodes > 1 && cluster_allows(kind, c->master_addr, e)) ||
        (!strncmp(c->uds_path, "tcp://", 6) && cluster_allows(kind, c->uds_path, e)))
        return -1;
    if (quant_parse(c->quantize, &c->quant, e))
        return -1;
    if (c->rope_scaling && !*c->rope_scaling)
        c->rope_scaling = NULL;
    if (c->speculate > DRAFTS_MOST)
        return err_set(e, ERR_VALIDATION, "--speculate %u: at most %d", c->speculate, DRAFTS_MOST);
    return 0;
}

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

/* ---------------------------------------------------------------- being stopped */

struct stopper {
    pthread_t thread;
    sigset_t signals;
    _Atomic(struct rpc_server *) server; /* NULL while the model loads */
    atomic_bool over;                    /* no longer wanted */
    bool away;         /* this rank serves the router of another machine, and ends with it */
    atomic_bool asked; /* by a signal: that others go as well is no surprise */
    atomic_bool lost;  /* then `why` is set */
    char why[480];
};

/* On the watch's thread. */
static void rank_gone(void *arg, bool left, const char *why)
{
    struct stopper *t = arg;
    struct rpc_server *server = atomic_load(&t->server);
    if (atomic_load(&t->asked))
        return;
    if (server && left && t->away) {
        log_msg(LOG_INFO, "%s: shutting down", why);
        rpc_server_stop(server);
        return;
    }
    snprintf(t->why, sizeof(t->why), "%s", why);
    atomic_store(&t->lost, true);
    if (server) {
        rpc_server_stop(server);
        return;
    }
    log_msg(LOG_ERROR, "while the model was loaded: %s", why);
    log_flush();
    _exit(1); /* nothing needs to be finished yet */
}

/* ---------------------------------------------------------------- parts, in order of life */

struct shard {
    char *dir;
    struct cluster cluster;
    struct ranks_options ranks;
    struct adapter_list adapters;
    struct startup_board *startup; /* NULL: none */
    uint32_t rank;
    struct comm *comm; /* of all ranks; its parts: see ranks_split() */
    struct comm *stage, *across;
    struct comm alone, alone_stage, alone_across; /* of a dry run */
    struct ranks_watch *watch;
    char **addresses; /* [world] */
    const struct backend_ops *ops;
    struct device *dev;
    struct packed *packed; /* NULL: packed weights are not kept */
    struct model *model;
    struct image_input images;
    struct tokenizer *tok;
    struct engine *engine;
    struct kv_below below;
    struct service service;
    struct rpc_server *server;
    struct tracer *tracer;
    struct watchdog *watchdog; /* NULL: none */
    _Atomic int64_t busy_ns;   /* the engine's thread */
};

static void close_all(struct shard *s)
{
    service_free(&s->service);
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

static int join(struct shard *s, const struct serve_config *c, struct stopper *t, struct err *e)
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
    t->away = ranks_away(&s->ranks);
    s->watch = ranks_watch(&s->ranks, s->comm, rank_gone, t, e);
    return c->nnodes > 1 && !s->watch ? -1 : 0;
}

/* In place of join(): the numbers of a rank, and no other rank. */
static int stand_alone(struct shard *s, const struct serve_config *c)
{
    s->alone = *comm_solo();
    s->alone.rank = (int)c->rank;
    s->alone.world = (int)c->world;
    s->alone.nodes = (int)c->nnodes;
    s->comm = s->stage = &s->alone;
    if (c->stages == 1)
        return 0;
    const int each = s->alone.world / (int)c->stages;
    s->alone_stage = s->alone_across = s->alone;
    s->alone_stage.rank = s->alone.rank % each;
    s->alone_stage.world = each;
    s->alone_across.rank = s->alone.rank / each;
    s->alone_across.world = (int)c->stages;
    s->alone_stage.whole = s->alone_across.whole = &s->alone;
    s->stage = &s->alone_stage;
    s->across = &s->alone_across;
    return 0;
}

static void phase(const struct shard *s, enum startup_phase p)
{
    startup_begin(s->startup, s->rank, p);
}

static void on_progress(void *arg, uint64_t done, uint64_t total)
{
    const struct shard *s = arg;
    startup_progress(s->startup, s->rank, done, total);
}

/* A process that serves or meets over TCP logs how that is protected. */
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

/* Of a reranker's answer; UINT32_MAX: the vocabulary has no such word. */
static uint32_t word_id(const struct tokenizer *tok, const char *word)
{
    const int64_t id = tokenizer_id(tok, word);
    return id >= 0 ? (uint32_t)id : UINT32_MAX;
}

static enum kv_dtype kv_dtype(const struct shard *s, const struct serve_config *c)
{
    return c->kv_dtype ? kv_dtype_chosen(c->kv_dtype) : model_kv_dtype(s->model);
}

/* What a cache depends on besides the files, in words. */
static int open_below(struct shard *s, const struct serve_config *c, struct err *e)
{
    const struct model_info *m = model_info(s->model);
    char words[512];
    /* which arithmetic it has, behind "CPU, N threads" */
    const char *device = s->ops->describe(s->dev), *comma = strchr(device, ',');
    comma = comma ? strchr(comma + 1, ',') : NULL;
    snprintf(words, sizeof(words), "%s %s %s %s %s %s %s %.17g %d rank %u of %u in %u%s", VERSION,
             s->ops->name, comma ? comma : device, dtype_name(m->dtype), quant_name(m->quant),
             arith_name(m->arith), c->rope_scaling ? c->rope_scaling : "-", c->rope_factor,
             (int)kv_dtype(s, c), c->rank, c->world, c->stages,
             c->expert_parallel ? " experts" : "");
    return m->task == TASK_GENERATE
               ? kv_below_open(&s->below, &c->below, s->dir, words, &s->cluster, e)
               : 0;
}

/* Of this rank, model and types. */
static void open_packed(struct shard *s, const struct serve_config *c)
{
    char words[256];
    const bool drafts = c->speculate > 0, heads = drafts && c->draft_heads && *c->draft_heads;
    if (!c->packed_cache || !*c->packed_cache || c->dry_run)
        return;
    snprintf(words, sizeof(words),
             "dtype %u quantize %s activations %u task %u drafts %d %u of %u in %u%s", c->dtype,
             quant_name(c->quant), c->activations, c->task, drafts, c->rank, c->world, c->stages,
             c->expert_parallel ? " experts" : "");
    const struct packed_options o = {.dir = c->packed_cache,
                                     .most_bytes = (uint64_t)(c->packed_size * (double)(1 << 30)),
                                     .model = s->dir,
                                     .heads = heads ? c->draft_heads : NULL,
                                     .words = words,
                                     .ops = s->ops,
                                     .dev = s->dev};
    s->packed = packed_open(&o);
}

/* Weights, pictures, engine; of a dry run their sizes only. */
static int open_model(struct shard *s, const struct serve_config *c, struct err *e)
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
                              .yes = word_id(s->tok, "yes"),
                              .no = word_id(s->tok, "no"),
                              .measure = c->dry_run,
                              .progress = on_progress,
                              .progress_arg = s,
                              .busy_ns = &s->busy_ns};
    phase(s, STARTUP_WEIGHTS);
    open_packed(s, c);
    m.packed = s->packed;
    if (!(s->model = model_load(s->dir, &m, e)))
        return -1;
    const struct image_input_options images = {.dir = s->dir,
                                               .tok = s->tok,
                                               .model = s->model,
                                               .ops = s->ops,
                                               .dev = s->dev,
                                               .measure = c->dry_run};
    if (image_input_open(&s->images, &images, e))
        return -1;
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
                               .offload_bytes = kv_below_memory(&c->below)};
    return (s->engine = engine_new(&g, e)) ? 0 : -1;
}

static struct dry_run planned(const struct shard *s, const struct serve_config *c)
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

/* What warm-up would refuse is refused before weights are read, and before any rank has taken
 * memory that another one counts as free. A model that cannot be measured says why when it loads.
 */
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
    const struct dry_run o = rc ? (struct dry_run){0} : planned(&m, &dry);
    if (rc == 0)
        rc = dry_run_plan(&o, &p, &unknown);
    if (rc)
        LOG(LOG_DEBUG, "memory cannot be planned", LOGS("error", unknown.msg));
    engine_free(m.engine);
    image_input_close(&m.images);
    model_free(m.model);
    return *p.why ? err_set(e, ERR_VALIDATION, "%s", p.why) : 0;
}

static int load(struct shard *s, const struct serve_config *c, struct stopper *t, struct err *e)
{
    s->rank = c->rank;
    if (c->startup_fd && !(s->startup = startup_board_map((int)c->startup_fd, e)))
        return -1;
    phase(s, STARTUP_CONFIG);
    if (!(s->dir = hub_resolve_model(c->model_id, c->revision, e)) ||
        adapter_list_read(&s->adapters, &c->lora_adapters, e) ||
        !(s->ops = backend_find(c->device, e)) || load_cluster(s, c, e))
        return -1;
    phase(s, STARTUP_TOKENIZER);
    if (!(s->tok = tokenizer_load(s->dir, e)))
        return -1;
    phase(s, STARTUP_RENDEZVOUS);
    struct device_options d = {.index = (int)(c->rank % (c->world / c->nnodes)),
                               .threads = worker_threads(c, s->ops),
                               .features = ~(uint64_t)0,
                               .arith = activations_plain(c->activations, (int)c->dtype - 1)};
    if (!(s->dev = s->ops->open(&d, e)))
        return -1;
    if (c->dry_run)
        return stand_alone(s, c) || open_model(s, c, e) ? -1 : 0;
    return check_memory(s, c, e) || join(s, c, t, e) || open_model(s, c, e) || open_below(s, c, e)
               ? -1
               : 0;
}

static int listen_at(struct shard *s, const struct serve_config *c, char local[RANKS_ADDRESS],
                     struct err *e)
{
    struct service_options o = {.engine = s->engine,
                                .model = model_info(s->model),
                                .adapters = model_adapters(s->model),
                                .runtime_adapters = c->runtime_adapters,
                                .tier = s->below.tier,
                                .peers = s->below.peers,
                                .weights = s->model,
                                .kv_identity = &s->below.identity,
                                .tok = s->tok,
                                .addresses = s->addresses,
                                .rank = c->rank,
                                .world = c->world,
                                .block_size = BLOCK_SIZE,
                                .speculate = c->speculate,
                                .device_type = s->ops->name,
                                .prefill_logprobs = c->prefill_logprobs,
                                .vision = s->images.vision,
                                .watermark = {(float)c->watermark_gamma, (float)c->watermark_delta},
                                .startup = s->startup};
    if (service_init(&s->service, &o, e))
        return -1;
    ranks_local_address(c->uds_path, c->rank, local);
    struct tracer_options t = {.endpoint = c->otlp_endpoint, .service_name = c->otlp_service_name};
    if (c->otlp_endpoint && *c->otlp_endpoint && !(s->tracer = tracer_new(&t, e)))
        return -1;
    struct rpc_server_options r = {.address = local,
                                   .also = ranks_away(&s->ranks) ? s->addresses[c->rank] : NULL,
                                   .methods = service_methods,
                                   .n_methods = service_n_methods,
                                   .ctx = &s->service,
                                   .after = service_after,
                                   .cluster = &s->cluster,
                                   .tracer = s->tracer,
                                   .busy_ns = &s->busy_ns};
    return (s->server = rpc_server_open(&r, e)) ? 0 : -1;
}

/* ---------------------------------------------------------------- running */

static void *wait_signal(void *arg)
{
    struct stopper *t = arg;
    int sig = 0;
    sigwait(&t->signals, &sig);
    if (atomic_load(&t->over))
        return NULL;
    LOG(LOG_INFO, "signal received, shutting down", LOGI("signal", sig));
    atomic_store(&t->asked, true);
    struct rpc_server *server = atomic_load(&t->server);
    if (server) {
        rpc_server_stop(server);
        return NULL;
    }
    log_flush();
    signal(sig, SIG_DFL); /* nothing needs to be finished yet: die of it */
    pthread_sigmask(SIG_UNBLOCK, &t->signals, NULL);
    raise(sig);
    return NULL;
}

/* Before any other thread: all inherit the mask, so that signals go to wait_signal() alone. */
static int catch_signals(struct stopper *t, struct err *e)
{
    *t = (struct stopper){0};
    sigemptyset(&t->signals);
    sigaddset(&t->signals, SIGTERM);
    sigaddset(&t->signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &t->signals, NULL);
    return pthread_create(&t->thread, NULL, wait_signal, t)
               ? err_set(e, ERR_SYSTEM, "cannot start a thread")
               : 0;
}

static void release_signals(struct stopper *t)
{
    atomic_store(&t->over, true);
    /* Blocked everywhere: sigwait() takes it. */
    pthread_kill(t->thread, SIGTERM); // NOLINT(bugprone-bad-signal-to-kill-thread)
    pthread_join(t->thread, NULL);
}

static void log_state(void *arg) { service_log_status(&((struct shard *)arg)->service); }

/* Nothing is closed or freed: what hangs may hold any lock. The kernel gives all of it back. */
static void end_stuck(void *arg)
{
    (void)arg;
    log_flush();
    _exit(EX_SOFTWARE);
}

/* Loading may take long; from here on requests wait for answers. */
static int watch(struct shard *s, const struct serve_config *c, struct err *e)
{
    if (!c->watchdog_s && !c->stall_s)
        return 0;
    if (!(s->watchdog = watchdog_new(c->watchdog_s * 1000, log_state, s, e)))
        return -1;
    watchdog_add(s->watchdog, "engine thread", &s->busy_ns);
    watchdog_add(s->watchdog, "rpc thread", rpc_server_busy(s->server));
    watchdog_end_stuck(s->watchdog, &s->busy_ns, c->stall_s * 1000, end_stuck, NULL);
    watchdog_end_stuck(s->watchdog, rpc_server_busy(s->server), c->stall_s * 1000, end_stuck, NULL);
    return watchdog_start(s->watchdog, e);
}

/* Until a signal or a fault. */
static int run(struct shard *s, struct stopper *t, struct err *e)
{
    s->service.server = s->server;
    atomic_store(&t->server, s->server);
    rpc_server_run(s->server);
    if (atomic_load(&t->lost))
        return err_set(e, ERR_SYSTEM, "%s", t->why);
    return atomic_load(&s->service.failed) ? err_set(e, ERR_SYSTEM, "lost the other ranks") : 0;
}

static void announce(const struct shard *s, const struct serve_config *c, const char *address)
{
    uint64_t free_bytes = 0, total = 0;
    struct err e = ERR_INIT;
    const struct model_info *m = model_info(s->model);
    s->ops->memory(s->dev, &free_bytes, &total, &e);
    LOG(LOG_INFO, "shard ready", LOGI("rank", c->rank), LOGI("world_size", c->world),
        LOGS("address", address), LOGS("model", c->model_id), LOGS("model_type", m->type),
        LOGS("dtype", dtype_name(m->dtype)), LOGS("quantize", quant_name(m->quant)),
        LOGS("activations", arith_name(m->arith)), LOGS("device", s->ops->describe(s->dev)),
        LOGI("weight_bytes", m->weight_bytes), LOGI("free_bytes", free_bytes));
}

/* 0: it fits; 1: it does not. */
static int print_plan(const struct shard *s, const struct serve_config *c, struct err *e)
{
    const struct dry_run o = planned(s, c);
    return dry_run_print(&o, stdout, e);
}

static int serve(const struct serve_config *c, struct err *e)
{
    struct shard s = {0};
    struct stopper t;
    char address[RANKS_ADDRESS];
    if (heartbeat_start(c->heartbeat_fd, e) || catch_signals(&t, e))
        return -1;
    int rc = load(&s, c, &t, e);
    if (rc == 0 && c->dry_run)
        rc = print_plan(&s, c, e);
    else if (rc == 0)
        rc = listen_at(&s, c, address, e) || kv_below_serve(&s.below, &c->below, c->rank, e) ? -1
                                                                                             : 0;
    if (rc == 0 && !c->dry_run)
        rc = watch(&s, c, e);
    if (rc == 0 && !c->dry_run) {
        announce(&s, c, address);
        packed_keep(s.packed);
        rc = run(&s, &t, e);
    }
    ranks_watch_end(s.watch);
    watchdog_free(s.watchdog);
    release_signals(&t); /* none will find the server any more */
    rpc_server_close(s.server);
    tracer_free(s.tracer);
    close_all(&s);
    return rc;
}

int cmd_serve(int argc, char **argv)
{
    struct serve_config cfg = {0};
    struct err e = ERR_INIT;
    int rc = flags_parse(&program, &cfg, argc, argv, environ, &e);
    const bool misread = rc < 0;
    if (misread)
        fprintf(stderr, "model-server serve: %s\n", e.msg);
    if (rc == 0) {
        log_init("model_server", (enum log_level)cfg.logger_level, cfg.json_output,
                 cfg.dry_run ? STDERR_FILENO : STDOUT_FILENO);
        stacks_init();
        rpc_loop_log();
        rc = check(&cfg, argc, argv, &e) ? -1 : serve(&cfg, &e);
        if (rc < 0)
            log_msg(LOG_ERROR, "%s", e.msg);
    }
    const int too_large = rc > 0 && cfg.dry_run ? EX_CONFIG : 0; /* --help is 1, too */
    flags_free(&program, &cfg);
    return misread ? FLAGS_USAGE : rc < 0 ? exit_code(&e) : too_large;
}
