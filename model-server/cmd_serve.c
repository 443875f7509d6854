/* model-server serve: one rank, from its flags to its last answer. */
#include "common/cleanup.h"
#include "common/flag/options.h"
#include "common/log/log.h"
#include "common/log/stacks.h"
#include "common/process/exit_code.h"
#include "common/process/heartbeat.h"
#include "common/process/process.h"
#include "common/rpc/loop.h"
#include "common/rpc/trace.h"
#include "common/thread/watchdog.h"
#include "model-server/commands.h"
#include "model-server/engine/step/drafts.h"
#include "model-server/service/service.h"
#include "model-server/shard.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static const char *const dtypes[] = {"auto", "float32", "float16", "bfloat16", NULL};
static const char *const levels[] = {"error", "warn", "info", "debug", "trace", "off", NULL};

// clang-format off
#define F(field) .off = offsetof(struct serve_config, field)
static const struct flag flags[] = {
    {.name = "model-id", .positional = true, .required = true, .type = FLAG_STR, F(model_id),
     .help = "A folder with config.json, tokenizer.json and safetensors weights, a GGUF file (or a folder with one), "
             "or a repository in the Hugging Face cache."},
    {.name = "revision", .type = FLAG_STR, F(revision), .help = "Branch, tag or commit in the cache; default: main."},
    {OPTION_MMPROJ, F(mmproj)},
    {.name = "task", .type = FLAG_ENUM, F(task), .def = "auto", .choices = model_task_choices, .env = "MODEL_TASK",
     .help = "Task of the model: generate, embed (vectors), rerank (scores of pairs), fill-mask (words); auto: detected from its files. A "
             "decoder supports all of them."},
    {.name = "pooling", .type = FLAG_ENUM, F(pooling), .def = "auto", .choices = sentence_pooling_choices, .env = "POOLING",
     .help = "Pooling of a model that embeds: cls, mean, last (last-token), splade, lexical (sparse vectors), colbert (vectors of tokens); auto: by its files."},
    {.name = "cutoff-layer", .type = FLAG_U32, F(cutoff_layer), .def = "0",
     .help = "Number of layers that a layerwise reranker computes, and behind which its score is; 0: all."},
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
    {OPTION_CONSTRAINT_MEMORY, F(constraint_gib)},
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
    {.name = "skip-missing-adapters", .type = FLAG_BOOL, F(skip_missing_adapters), .env = "",
     .help = "Serve without those of --lora-adapters whose files are gone or damaged; set by the launcher when it restarts a shard."},
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

/* ---------------------------------------------------------------- being stopped */

struct stopper {
    pthread_t thread;
    sigset_t signals;
    _Atomic(struct rpc_server *) server; /* NULL while the model loads */
    atomic_bool over;                    /* no longer wanted */
    const struct shard *shard;
    atomic_bool asked; /* by a signal: then lost peers are expected */
    atomic_bool lost;  /* then `why` is set */
    char why[480];
};

/* On the watch's thread. */
static void rank_gone(void *arg, bool over, const char *why)
{
    struct stopper *t = arg;
    struct rpc_server *server = atomic_load(&t->server);
    if (atomic_load(&t->asked))
        return;
    /* a rank that serves a router on another machine ends with it */
    if (server && over && ranks_away(&t->shard->ranks)) {
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
    _exit(1); /* nothing has to be finished yet */
}

/* ---------------------------------------------------------------- serving */

struct serving {
    struct shard shard;
    struct service service;
    struct rpc_server *server;
    struct tracer *tracer;
    struct watchdog *watchdog; /* NULL: none */
};

static int listen_at(struct serving *v, const struct serve_config *c, char local[RANKS_ADDRESS],
                     struct err *e)
{
    struct shard *s = &v->shard;
    struct service_options o = {.engine = s->engine,
                                .model = model_info(s->model),
                                .adapters = model_adapters(s->model),
                                .runtime_adapters = c->runtime_adapters,
                                .tier = s->below.tier,
                                .peers = s->below.peers,
                                .transfer_address = c->below.address,
                                .weights = s->model,
                                .packed = s->packed,
                                .kv_identity = &s->below.identity,
                                .words = &s->words,
                                .tok = s->tok,
                                .addresses = s->addresses,
                                .rank = c->rank,
                                .world = c->world,
                                .block_size = BLOCK_SIZE,
                                .speculate = c->speculate,
                                .device_type = s->ops->name,
                                .files = s->identified ? &s->files : NULL,
                                .prefill_logprobs = c->prefill_logprobs,
                                .vision = s->images.vision,
                                .watermark = {(float)c->watermark_gamma, (float)c->watermark_delta},
                                .startup = s->startup};
    if (service_init(&v->service, &o, e))
        return -1;
    ranks_local_address(c->uds_path, c->rank, local);
    struct tracer_options t = {.endpoint = c->otlp_endpoint, .service_name = c->otlp_service_name};
    if (c->otlp_endpoint && *c->otlp_endpoint && !(v->tracer = tracer_new(&t, e)))
        return -1;
    struct rpc_server_options r = {.address = local,
                                   .also = ranks_away(&s->ranks) ? s->addresses[c->rank] : NULL,
                                   .methods = service_methods,
                                   .n_methods = service_n_methods,
                                   .ctx = &v->service,
                                   .after = service_after,
                                   .failed = service_refused,
                                   .cluster = &s->cluster,
                                   .tracer = v->tracer,
                                   .busy_ns = &s->busy_ns};
    return (v->server = rpc_server_open(&r, e)) ? 0 : -1;
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
    signal(sig, SIG_DFL); /* nothing has to be finished yet: default action */
    pthread_sigmask(SIG_UNBLOCK, &t->signals, NULL);
    raise(sig);
    return NULL;
}

/* Before any other thread: all inherit the mask, so that only wait_signal() gets signals. */
static int catch_signals(struct stopper *t, struct err *e)
{
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
    /* Blocked everywhere: sigwait() receives it. */
    pthread_kill(t->thread, SIGTERM); // NOLINT(bugprone-bad-signal-to-kill-thread)
    pthread_join(t->thread, NULL);
}

static void log_state(void *arg) { service_log_status(&((struct serving *)arg)->service); }

/* Nothing is closed or freed: a hanging thread may hold any lock. The kernel frees everything. */
static void end_stuck(void *arg)
{
    (void)arg;
    log_flush();
    _exit(EX_SOFTWARE);
}

/* Loading may take long; from here on requests wait for answers. */
static int watch(struct serving *v, const struct serve_config *c, struct err *e)
{
    if (!c->watchdog_s && !c->stall_s)
        return 0;
    if (!(v->watchdog = watchdog_new(c->watchdog_s * 1000, log_state, v, e)))
        return -1;
    watchdog_add(v->watchdog, "engine thread", &v->shard.busy_ns);
    watchdog_add(v->watchdog, "rpc thread", rpc_server_busy(v->server));
    watchdog_end_stuck(v->watchdog, &v->shard.busy_ns, c->stall_s * 1000, end_stuck, NULL);
    watchdog_end_stuck(v->watchdog, rpc_server_busy(v->server), c->stall_s * 1000, end_stuck, NULL);
    return watchdog_start(v->watchdog, e);
}

static int run(struct serving *v, struct stopper *t, struct err *e)
{
    v->service.server = v->server;
    atomic_store(&t->server, v->server);
    rpc_server_run(v->server);
    if (atomic_load(&t->lost))
        return err_set(e, ERR_SYSTEM, "%s", t->why);
    if (!atomic_load(&v->service.failed))
        return 0;
    if (service_spoilt(&v->service, e)) /* it is the cause */
        return -1;
    return err_set(e, ERR_SYSTEM, "lost %s",
                   v->service.o.world > 1 ? "the other ranks" : "the device");
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

/* Serves until a signal or an error. */
static int serve_shard(struct serving *v, const struct serve_config *c, struct stopper *t,
                       struct err *e)
{
    char address[RANKS_ADDRESS];
    if (listen_at(v, c, address, e) || kv_below_serve(&v->shard.below, &c->below, c->rank, e) ||
        watch(v, c, e))
        return -1;
    announce(&v->shard, c, address);
    packed_keep(v->shard.packed);
    return run(v, t, e);
}

enum { CLOSE_S = 10 };

static int fail(const struct err *e)
{
    log_msg(LOG_ERROR, "%s", e->msg);
    log_flush();
    process_close_within(CLOSE_S, false);
    return -1;
}

/* For a dry run 0: it fits; 1: it does not. */
static int serve(const struct serve_config *c, struct err *e)
{
    struct serving v = {0};
    struct stopper t = {.shard = &v.shard};
    if (heartbeat_start(c->heartbeat_fd, e) || catch_signals(&t, e))
        return fail(e);
    int rc = shard_load(&v.shard, c, rank_gone, &t, e);
    if (rc == 0 && c->dry_run) {
        const struct dry_run plan = shard_plan(&v.shard, c);
        rc = dry_run_print(&plan, stdout, e);
    } else if (rc == 0) {
        rc = serve_shard(&v, c, &t, e);
    }
    log_flush();
    process_close_within(CLOSE_S, rc >= 0);
    if (rc < 0)
        fail(e);
    ranks_watch_end(v.shard.watch);
    watchdog_free(v.watchdog);
    release_signals(&t); /* later signals do not reach the server */
    rpc_server_close(v.server);
    tracer_free(v.tracer);
    service_free(&v.service);
    process_close_within(0, true); /* memory of any size, and files */
    if (v.shard.comm)
        v.shard.comm->failed = rc < 0;
    shard_close(&v.shard);
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
        rc = check(&cfg, argc, argv, &e) ? fail(&e) : serve(&cfg, &e);
    }
    const int too_large = rc > 0 && cfg.dry_run ? EX_CONFIG : 0; /* --help is 1, too */
    flags_free(&program, &cfg);
    return misread ? FLAGS_USAGE : rc < 0 ? exit_code(&e) : too_large;
}
