#include "launcher/flags.h"
#include "common/sentence.h"
#include <arpa/inet.h>
#include <string.h>

static const char *const dtypes[] = {"auto", "float16", "bfloat16", "float32", NULL};
static const char *const kv_dtypes[] = {"auto", "float16",  "bfloat16",   "float32", "int8",
                                        "fp8",  "fp8_e4m3", "fp8_e4m3fn", NULL};
static const char *const quantizers[] = {"auto",
                                         "awq",
                                         "compressed-tensors",
                                         "eetq",
                                         "exl2",
                                         "gptq",
                                         "marlin",
                                         "bitsandbytes",
                                         "bitsandbytes-nf4",
                                         "bitsandbytes-fp4",
                                         "fp8",
                                         "w8a8",
                                         "int8",
                                         "int4",
                                         "none",
                                         NULL};
enum { SHARDS_MAX = 64 };
enum { QUANT_EXL2 = 4, QUANT_BITSANDBYTES = 7 };
static const char *const ropes[] = {"none", "linear", "dynamic", NULL};
static const char *const whitespace_words[] = {"indented", "compact", NULL};
static const char *const sharded_words[] = {"auto", "true", "false", NULL};
static const char *const devices_[] = {"auto", "cpu", "cuda", NULL};
static const char *const stats_words[] = {"on", "off", "no-stack", NULL};

#define AT(field) .off = offsetof(struct config, field)
#define ROW(n, t, field, who, what)                                                                \
    .name = (n), .type = FLAG_##t, AT(field), .tag = (who), .help = (what)
#define BETWEEN(lo, hi) .min = (lo), .max = (hi)

/* clang-format off */
static const struct flag rows[] = {
    {ROW("model-id", STR, model_id, 0, "The model: a local directory, a GGUF file (or a directory with one), or the name of a repository of the Hugging Face hub, which is downloaded when it is not in the cache (org/name:Q4_K_M: one of its GGUF models)."), .def = "bigscience/bloom-560m"},
    {ROW("revision", STR, revision, TO_ROUTER | TO_SHARD, "Branch, tag or commit of the repository.")},
    {ROW("validation-workers", U32, validation_workers, TO_ROUTER, "Threads that tokenize and validate requests."), .def = "2"},
    {ROW("sharded", ENUM, sharded, 0, "Whether to split the model over several shards. With `true` and no --num-shard, one shard per visible device."), .choices = sharded_words},
    {ROW("num-shard", U32, num_shard, 0, "Number of shards the model is split into, on all machines together. Unset: one per visible device, or 1, on each machine."), BETWEEN(1, SHARDS_MAX), .unit = "shards"},
    {ROW("quantize", ENUM, quantize, TO_SHARD, "Keep the weights in fewer bits, made at load: eetq (or int8: 8-bit weights), w8a8 (8-bit weights and activations), int4, fp8 (8-bit floating point). `auto`: as the checkpoint is. gptq, awq, marlin, fp8 and compressed-tensors are checked against a checkpoint that is stored quantised. The other schemes are not supported by this version."), .choices = quantizers},
    {ROW("speculate", U32, speculate, TO_SHARD, "Speculative decoding: at most so many draft tokens of a request are verified by one step, as many as are worth it. Drafts are what followed the same words before, or come from --draft-model-id. Answers stay the same. Unset: 8 with a draft model, else none."), .unit = "tokens"},
    {ROW("dtype", ENUM, dtype, TO_SHARD, "Type of the weights. `auto`: as the checkpoint has them, computed with in fp32. float16 or bfloat16 that is asked for may be computed with too, where the CPU is faster so."), .choices = dtypes},
    {ROW("task", ENUM, task, TO_SHARD, "What the model is served for: `generate`; `embed`, vectors; `rerank`, scores of pairs. `auto` follows its files: modules.json and encoders embed, classifiers with one label rerank, all else generates."), .choices = model_task_choices, .env = "MODEL_TASK"},
    {ROW("kv-cache-dtype", ENUM, kv_cache_dtype, TO_SHARD, "Type of the KV cache. `auto` follows the model. `int8` and `fp8` (e4m3; also `fp8_e4m3`, `fp8_e4m3fn`) take half of what 16 bits take; int8 is the more exact of the two. There is no fp8_e5m2."), .choices = kv_dtypes},
    {ROW("trust-remote-code", BOOL, trust_remote_code, TO_ROUTER | TO_SHARD | TO_DOWNLOAD, "Accepted for compatibility. No code from a model repository is ever run.")},
    {ROW("max-concurrent-requests", U32, max_concurrent_requests, TO_ROUTER, "Requests in flight before the server answers `overloaded`."), .def = "128", BETWEEN(1, 1e6), .unit = "requests"},
    {ROW("max-best-of", U32, max_best_of, TO_ROUTER, "Largest `best_of` of a request; on `/v1` at least 128."), .def = "2"},
    {ROW("max-stop-sequences", U32, max_stop_sequences, TO_ROUTER, "Most stop sequences of a request; on `/v1` at least 16."), .def = "4"},
    {ROW("max-top-n-tokens", U32, max_top_n_tokens, TO_ROUTER, "Largest `top_n_tokens` of a request; `top_logprobs` on `/v1` may be at least 20."), .def = "5"},
    {ROW("max-input-tokens", U32, max_input_tokens, TO_ROUTER | TO_SHARD, "Longest prompt accepted, after tokenization. Unset: what model and memory allow."), .unit = "tokens"},
    {ROW("max-input-length", U32, max_input_length, 0, "Old name of --max-input-tokens."), .unit = "tokens"},
    {ROW("max-total-tokens", U32, max_total_tokens, TO_ROUTER | TO_SHARD_ENV, "Longest prompt and answer together. Unset: what model and memory allow."), .unit = "tokens"},
    {ROW("waiting-served-ratio", F64, waiting_served_ratio, TO_ROUTER, "Waiting requests per running one above which running ones are paused to prefill."), .def = "0.3", BETWEEN(0, 1e6)},
    {ROW("max-batch-prefill-tokens", U32, max_batch_prefill_tokens, TO_ROUTER, "Most prompt tokens computed in one step. Unset: the router's default."), .unit = "tokens"},
    {ROW("max-batch-total-tokens", U32, max_batch_total_tokens, TO_ROUTER, "Most tokens of all running requests together. Unset: measured at warm-up."), .unit = "tokens"},
    {ROW("target-inter-token-ms", U32, target_inter_token_ms, TO_ROUTER, "While answers are streamed, a step takes so many prompt tokens that the next token comes in this time, or in twice what it takes without prompts. 0: as many as --max-batch-prefill-tokens."), .def = "200", .unit = "milliseconds"},
    {ROW("max-waiting-tokens", U32, max_waiting_tokens, TO_ROUTER, "Decode steps after which waiting requests are let in regardless of --waiting-served-ratio."), .def = "20", .unit = "steps"},
    {ROW("max-batch-size", U32, max_batch_size, TO_ROUTER | TO_SHARD_ENV, "Most requests in a batch. Unset: no limit of its own."), .unit = "requests"},
    {ROW("cuda-graphs", LIST, cuda_graphs, TO_SHARD_ENV, "Batch sizes captured as CUDA graphs; 0 turns them off."), .def = "1,2,4,8,16,32"},
    {ROW("hostname", STR, hostname, 0, "Address to listen on."), .def = "0.0.0.0"},
    {ROW("port", U32, port, TO_ROUTER, "Port to listen on."), .letter = 'p', .def = "3000", BETWEEN(1, 65535)},
    {ROW("prometheus-port", U32, prometheus_port, TO_ROUTER, "Accepted for compatibility: metrics are at /metrics of --port."), .def = "9000", BETWEEN(1, 65535)},
    {ROW("shard-uds-path", STR, shard_uds_path, 0, "Sockets of the shards: rank r listens on `<path>-<r>`. Unset: /tmp/text-generation-server-<port>.")},
    {ROW("nnodes", U32, nnodes, TO_SHARD_ENV, "Machines that the model is split over, with as many shards on each; start the launcher on every one of them with the same options."), .def = "1", BETWEEN(1, 64), .unit = "machines"},
    {ROW("node-rank", U32, node_rank, 0, "Which of the machines this is, from 0. The router runs on machine 0."), .def = "0", BETWEEN(0, 63)},
    {ROW("master-addr", STR, master_addr, 0, "Where ranks on several machines meet: name or address of machine 0."), .def = "localhost"},
    {ROW("master-port", U32, master_port, 0, "Port where ranks on several machines meet; rank r of another machine than 0 answers the router on this port + 1 + r."), .def = "29500", BETWEEN(1, 65535)},
    {ROW("rendezvous-timeout", U32, rendezvous_timeout, TO_SHARD_ENV, "How long ranks on several machines wait for each other, when they meet and later."), .def = "120", BETWEEN(1, 86400), .unit = "seconds"},
    {ROW("cluster-cert", STR, cluster.cert, TO_ROUTER | TO_SHARD, CLUSTER_CERT_HELP)},
    {ROW("cluster-key", STR, cluster.key, TO_ROUTER | TO_SHARD, CLUSTER_KEY_HELP)},
    {ROW("cluster-ca", STR, cluster.ca, TO_ROUTER | TO_SHARD, CLUSTER_CA_HELP)},
    {ROW("cluster-secret-file", STR, cluster.secret_file, TO_ROUTER | TO_SHARD, CLUSTER_SECRET_HELP)},
    {ROW("huggingface-hub-cache", STR, hub_cache, TO_SHARD_ENV | TO_DOWNLOAD_ENV | TO_ROUTER_ENV, "Directory of the hub cache.")},
    {ROW("weights-cache-override", STR, weights_cache, TO_SHARD_ENV | TO_DOWNLOAD_ENV | TO_ROUTER_ENV, "Directory that stands for the model, whatever --model-id says; nothing is downloaded for it.")},
    {ROW("disable-custom-kernels", BOOL, disable_custom_kernels, TO_SHARD_ENV, "Use reference kernels only; for finding faults.")},
    {ROW("cuda-memory-fraction", F64, cuda_memory_fraction, TO_SHARD_ENV, "Share of a device's memory to use."), .def = "1.0", BETWEEN(0.01, 1)},
    {ROW("rope-scaling", ENUM, rope_scaling, TO_SHARD_ENV, "Stretch the rotary positions beyond what the checkpoint was trained for."), .choices = ropes},
    {ROW("rope-factor", F64, rope_factor, TO_SHARD_ENV, "By how much. Alone it means --rope-scaling linear.")},
    {ROW("json-output", BOOL, json_output, 0, "Log lines as JSON instead of text.")},
    {ROW("otlp-endpoint", STR, otlp_endpoint, TO_ROUTER | TO_SHARD, "Collector to send traces to.")},
    {ROW("otlp-service-name", STR, otlp_service_name, TO_ROUTER | TO_SHARD, "Service name of the traces."), .def = "text-generation-inference.router"},
    {ROW("models-folder", STR, models_folder, TO_ROUTER, "Folder of more models: a request may name one by its path there, and it is loaded on demand.")},
    {ROW("max-loaded-models", U32, max_loaded_models, TO_ROUTER, "Most models of --models-folder that are loaded at the same time; the least recently used one that is idle makes way."), .def = "1", BETWEEN(1, 64), .unit = "models"},
    {ROW("lmtp-listen", STR, lmtp_listen, TO_ROUTER, "Also speak LMTP as lines here: `unix:/path` or `host:port`.")},
    {ROW("lmtp-model-alias", LIST, lmtp_model_alias, TO_ROUTER, "Other names that LMTP clients may call the model; `*`: any.")},
    {ROW("lmtp-max-message", U32, lmtp_max_message, TO_ROUTER, "Longest LMTP message of a client."), .def = "4194304", BETWEEN(1024, 1 << 30), .unit = "bytes"},
    {ROW("lmtp-grace", U32, lmtp_grace, TO_ROUTER, "How long an LMTP stream with a `session` is kept for a client that comes back; 0: never."), .def = "30", .max = 3600, .unit = "seconds"},
    {ROW("cors-allow-origin", LIST, cors_allow_origin, TO_ROUTER, "Origin that browsers may call from; may be repeated.")},
    {ROW("api-key-file", STR, api_key_file, TO_ROUTER, "File with a key a line that clients may send as a bearer token; what follows a key after a blank is the name that logs call its holder.")},
    {ROW("api-key", STR, api_key, 0, "Key that clients must send as a bearer token; several with commas between them. Better given as API_KEY: a command line can be read by every user.")},
    {ROW("tls-cert", STR, tls_cert, TO_ROUTER, "Serve HTTPS with the certificate (and the chain behind it) in this PEM file. SIGHUP reads it again.")},
    {ROW("tls-key", STR, tls_key, TO_ROUTER, "PEM file with its private key.")},
    {ROW("watermark-gamma", F64, watermark_gamma, TO_SHARD_ENV, "Share of the vocabulary that a watermark favours.")},
    {ROW("watermark-delta", F64, watermark_delta, TO_SHARD_ENV, "How much a watermark favours it.")},
    {ROW("ngrok", BOOL, ngrok, 0, "Not supported: put a tunnel of your choice in front.")},
    {ROW("ngrok-authtoken", STR, ngrok_authtoken, 0, "Not supported.")},
    {ROW("ngrok-edge", STR, ngrok_edge, 0, "Not supported.")},
    {ROW("tokenizer-config-path", STR, tokenizer_config_path, TO_ROUTER, "File to use in place of the model's tokenizer_config.json.")},
    {ROW("disable-grammar-support", BOOL, disable_grammar_support, TO_ROUTER, "Refuse requests that constrain the answer by a grammar.")},
    {ROW("dry-run", BOOL, dry_run, 0, "Start nothing: print what each rank of this machine would take (weights, KV cache, workspaces, adapters), the limits that follow and the command lines, and exit. Downloads nothing and keeps no weights. With --json-output as one JSON object. Exit status: 0 it fits, 3 it does not, 1 that cannot be said, 2 wrong options."), .env = ""},
    {ROW("json-whitespace", ENUM, json_whitespace, TO_ROUTER, "White space between the tokens of constrained JSON: `indented` (at most one blank, or one line break with its indentation) or `compact` (none). Schemas with `strict` are always compact."), .choices = whitespace_words, .def = "indented"},
    {ROW("trust-request-chat-template", BOOL, trust_request_chat_template, TO_ROUTER, "Use the `chat_template` of a request; without it such a request is refused.")},
    {ROW("env", BOOL, env, 0, "Print what a bug report needs (versions, system, devices) and exit."), .letter = 'e', .env = ""},
    {ROW("max-client-batch-size", U32, max_client_batch_size, TO_ROUTER, "Most inputs in one request; on `/v1/completions` at least 2048 prompts."), .def = "4"},
    {ROW("lora-adapters", LIST, lora_adapters, TO_SHARD_ENV, "LoRA adapters to serve beside the model: `id`, `id@revision`, `name=path` or `name=path@revision`. Requests name one by `adapter_id` or `model`.")},
    {ROW("max-runtime-adapters", U32, max_runtime_adapters, TO_SHARD, "Adapters that may be loaded while the server runs, by `POST /v1/load_lora_adapter`, beside those of `--lora-adapters`. The memory for adapters is then reserved at the start. Requests whose `model` is no model and no adapter are then refused."), .def = "0", .unit = "adapters", BETWEEN(0, 1024)},
    {ROW("adapter-memory-fraction", F64, adapter_memory_fraction, TO_SHARD, "Share of the memory that is free beside the weights for adapters on the device; others wait in host memory for their turn."), .def = "0.1", BETWEEN(0, 1)},
    {ROW("response-store", STR, response_store, TO_ROUTER, "Folder for the responses of `/v1/responses`, which can then be continued (`previous_response_id`), read, deleted, and made in the background. One server at a time has it. Default: nothing is stored.")},
    {ROW("response-store-bytes", U64, response_store_bytes, TO_ROUTER, "What the stored responses may take; those that were unused for longest are deleted."), .def = "1073741824", .unit = "bytes", BETWEEN(1024, 1e15)},
    {ROW("response-store-count", U32, response_store_count, TO_ROUTER, "Most stored responses."), .def = "100000", .unit = "responses", BETWEEN(1, 1e9)},
    {ROW("response-store-ttl", U32, response_store_ttl, TO_ROUTER, "A stored response that nobody continues for so long is deleted."), .def = "2592000", .unit = "seconds", BETWEEN(1, 1e9)},
    {ROW("usage-stats", ENUM, usage_stats, TO_ROUTER, "Accepted for compatibility. Nothing is ever sent."), .def = "off", .choices = stats_words},
    {ROW("payload-limit", U64, payload_limit, TO_ROUTER, "Largest request body."), .def = "2000000", .unit = "bytes"},
    {ROW("enable-prefill-logprobs", BOOL, prefill_logprobs, 0, "Compute log-probabilities of prompt tokens for requests that ask for details.")},
    {ROW("graceful-termination-timeout", U32, graceful_termination_timeout, 0, "How long running requests may take to finish after SIGTERM."), .letter = 'g', .def = "90", .unit = "seconds"},
    /* ours */
    {ROW("device", ENUM, device, TO_SHARD, "Where to compute. `auto`: CUDA when the plugin and a device are there, else CPU."), .choices = devices_},
    {ROW("kv-cache-memory", F64, kv_cache_memory, TO_SHARD, "Limit of the KV cache of each shard: up to 1 a share of the free memory, above that bytes. Unset: what is free."), BETWEEN(0, 1e18)},
    {ROW("swap-space", F64, swap_space, TO_SHARD, "Host memory of each shard for the KV blocks of requests that must make way for others, in GiB. Unset: none; what they held is computed again."), BETWEEN(0, 1e6), .unit = "GiB"},
    {ROW("draft-model-id", STR, draft_model_id, 0, "A smaller model of the same vocabulary that drafts tokens beside this one, in a process of its own: it is never waited for, may die, and is started again.")},
    {ROW("draft-shard-uds-path", STR, draft_shard_uds_path, TO_ROUTER, "In the place of --draft-model-id: where a draft model that somebody else starts is to be found, perhaps on another machine (`model-server serve MODEL --uds-path tcp://0.0.0.0:PORT` there, `tcp://HOST:PORT` here).")},
    {ROW("draft-quantize", ENUM, draft_quantize, 0, "As --quantize, for the draft model."), .choices = quantizers},
    {ROW("draft-device", ENUM, draft_device, 0, "As --device, for the draft model. `auto`: as --device."), .choices = devices_},
    {ROW("draft-threads", U32, draft_threads, 0, "Threads of the draft model. Unset: a quarter of the cores, which the shards then leave to it."), BETWEEN(1, 4096), .unit = "threads"},
    {ROW("draft-kv-cache-memory", F64, draft_kv_cache_memory, 0, "As --kv-cache-memory, for the draft model."), .def = "0.25", BETWEEN(0, 1e18)},
    {ROW("served-model-name", STR, served_model_name, TO_ROUTER, "Name of the model in answers and in /v1/models. Unset: --model-id.")},
    {ROW("max-image-fetch-size", U64, max_image_fetch_size, TO_ROUTER, "Largest image fetched for a request."), .unit = "bytes"},
    {ROW("threads", U32, threads, 0, "Threads of each shard. Unset: the cores this process may use, divided by the number of shards."), BETWEEN(1, 4096), .unit = "threads"},
    {ROW("startup-timeout", U32, startup_timeout, 0, "How long shards may take until they answer; 0: for ever."), .def = "600", .unit = "seconds"},
    {ROW("max-shard-restarts", U32, max_shard_restarts, 0, "How often within an hour shards that died while they served are started again, under the router and its streams, which go on where they were. After that, and with 0, the service ends. A first load that a shard was killed in (SIGKILL, as when memory runs out) is tried once more; one that failed is not. On one machine only."), .def = "3", .max = 1000},
    {ROW("watchdog-seconds", U32, watchdog_seconds, TO_ROUTER | TO_SHARD, "A thread that serves and makes no progress for so long has the stacks of all threads written to the log, with the state of scheduler or engine. 0: never."), .def = "120", .max = 86400, .unit = "seconds"},
    {ROW("stall-timeout", U32, stall_timeout, TO_SHARD, "A shard whose engine makes no progress inside a step for so long (a deadlock, a device that hangs) ends and is started again; streams go on. The time is at least 10 times the longest pause so far, and 10 times longer while the process uses CPU time. 0: never."), .def = "30", .max = 86400, .unit = "seconds"},
    {ROW("heartbeat-timeout", U32, heartbeat_timeout, 0, "A child process without a heartbeat is killed as frozen when it has used no CPU time for so long, and a shard is started again; 0: never. The time is longer where the launcher itself gets no core in time."), .def = "3", .max = 3600, .unit = "seconds"},
    {ROW("log-level", STR, log_level, 0, "error, warn, info, debug or trace."), .def = "info"},
    {0},
};
/* clang-format on */

static const struct flag_command commands[] = {
    {"health", "Wait until a shard is ready."},
    {"lmtp", "Send lines as LMTP requests and print the answers."},
    {0},
};
const struct flag_program launcher_flags = {"launcher",
                                            "Serve a language model: starts one model-server per "
                                            "shard and a router, watches over them, and stops "
                                            "them in order.",
                                            rows, commands};

static int invalid(struct err *e, const char *what)
{
    return err_set(e, ERR_VALIDATION, "Invalid argument: %s", what);
}

int flags_num_shard(const struct config *c, int devices, uint32_t *out, struct err *e)
{
    if (c->sharded == SHARDED_TRUE && c->num_shard == 1)
        return invalid(e, "`sharded` is true but `num_shard` <= 1");
    if (c->num_shard)
        return *out = c->num_shard, 0;
    if (c->sharded == SHARDED_FALSE)
        return *out = c->nnodes, 0;
    if (c->sharded == SHARDED_AUTO)
        return *out = (devices > 0 ? (uint32_t)devices : 1) * c->nnodes, 0;
    if (devices < 0)
        return invalid(e, "`sharded` is true but no device is visible: give `num_shard`");
    if (devices <= 1)
        return err_set(e, ERR_VALIDATION,
                       "not enough cuda devices: `sharded` is true but only found %d CUDA devices",
                       devices);
    return *out = (uint32_t)devices * c->nnodes, 0;
}

static int check_nodes(const struct config *c, struct err *e)
{
    if (c->node_rank >= c->nnodes)
        return err_set(e, ERR_VALIDATION,
                       "Invalid argument: `node_rank` (%u) must be < `nnodes` (%u)", c->node_rank,
                       c->nnodes);
    if (c->num_shard % c->nnodes || c->num_shard > SHARDS_MAX)
        return err_set(e, ERR_VALIDATION,
                       "Invalid argument: `num_shard` (%u) must be a multiple of `nnodes` (%u), "
                       "and at most %d",
                       c->num_shard, c->nnodes, SHARDS_MAX);
    if (c->nnodes > 1 && c->models_folder)
        return invalid(e, "`models_folder` and several machines (`nnodes`) do not go together yet");
    if (c->nnodes > 1 && c->master_port + c->num_shard > 65535)
        return err_set(e, ERR_VALIDATION,
                       "Invalid argument: `master_port` (%u): %u ports above it are needed",
                       c->master_port, c->num_shard);
    return 0;
}

static int check_cluster(const struct config *c, struct err *e)
{
    const enum cluster_kind kind = cluster_kind_of(&c->cluster);
    if (cluster_flags_check(&c->cluster, e) ||
        (c->nnodes > 1 && cluster_allows(kind, c->master_addr, e)) ||
        (c->draft_shard_uds_path && cluster_allows(kind, c->draft_shard_uds_path, e)))
        return err_wrap(e, "Invalid argument");
    return 0;
}

static int check_tokens(struct config *c, struct err *e)
{
    if (c->max_input_tokens && c->max_input_length)
        return err_set(
            e, ERR_VALIDATION,
            "Invalid argument: Both `max_input_tokens` (%u) and `max_input_length` (%u) are set. "
            "Please give only `max_input_tokens`: `max_input_length` is its old name.",
            c->max_input_tokens, c->max_input_length);
    if (c->max_input_length)
        c->max_input_tokens = c->max_input_length;
    if (c->max_input_tokens && c->max_total_tokens && c->max_input_tokens >= c->max_total_tokens)
        return err_set(e, ERR_VALIDATION,
                       "Invalid argument: `max_input_tokens`(%u) must be < `max_total_tokens`(%u)",
                       c->max_input_tokens, c->max_total_tokens);
    return 0;
}

static int check_lora(const struct config *c, struct err *e)
{
    for (uint32_t i = 0; i < c->lora_adapters.n; i++) {
        const char *item = c->lora_adapters.v[i], *at = strchr(item, '@');
        if (at && strchr(at + 1, '@'))
            return err_set(e, ERR_VALIDATION, "Invalid argument: Invalid LoRA adapter format: %s",
                           item);
    }
    return 0;
}

int flags_check(struct config *c, int devices, struct err *e)
{
    if (flags_num_shard(c, devices, &c->num_shard, e) || check_nodes(c, e) || check_cluster(c, e))
        return -1;
    if (c->num_shard > 1 && c->quantize == QUANT_EXL2)
        return invalid(e, "Sharding is currently not supported with `exl2` quantization");
    if (check_tokens(c, e))
        return -1;
    if (c->validation_workers == 0)
        return invalid(e, "`validation_workers` must be > 0");
    if (c->max_total_tokens && c->max_batch_total_tokens &&
        c->max_total_tokens > c->max_batch_total_tokens)
        return err_set(e, ERR_VALIDATION,
                       "Invalid argument: `max_total_tokens` must be <= `max_batch_total_tokens`. "
                       "Given: %u and %u",
                       c->max_total_tokens, c->max_batch_total_tokens);
    if (c->ngrok)
        return invalid(
            e, "`ngrok` is not supported: put a tunnel of your choice in front of the port");
    if (check_lora(c, e))
        return -1;
    if (c->draft_model_id && c->draft_shard_uds_path)
        return invalid(e, "`draft_model_id` and `draft_shard_uds_path`: give one of them");
    if ((c->draft_model_id || c->draft_shard_uds_path) && !c->speculate)
        c->speculate = 8;
    if (c->rope_factor > 0 && !c->rope_scaling)
        c->rope_scaling = 1; /* linear */
    if (c->rope_scaling && c->rope_factor == 0)
        c->rope_factor = 1;
    return 0;
}

const char *flags_bind_address(const char *hostname)
{
    unsigned char any[sizeof(struct in6_addr)];
    if (!strcmp(hostname, "localhost"))
        return "127.0.0.1";
    if (inet_pton(AF_INET, hostname, any) == 1 || inet_pton(AF_INET6, hostname, any) == 1)
        return hostname;
    return "0.0.0.0";
}
