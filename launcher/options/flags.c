#include "launcher/options/flags.h"
#include "common/flag/options.h"
#include "common/model/sentence.h"
#include "common/net/listen_address.h"
#include "common/net/peer_address.h"
#include "launcher/options/foreign.h"
#include <assert.h>
#include <string.h>

static const char *const dtypes[] = {"auto",         "float16",       "bfloat16", "float32",
                                     "half=float16", "float=float32", NULL};
static const char *const kv_dtypes[] = {"auto", "float16", "bfloat16", "float32",    "int8",
                                        "fp8",  "int4",    "fp8_e4m3", "fp8_e4m3fn", NULL};
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
enum { SHARDS_MAX = 64, REPLICAS_MAX = 64 };
enum { QUANT_EXL2 = 4, QUANT_BITSANDBYTES = 7 };
static const char *const ropes[] = {"none", "linear", "dynamic", NULL};
static const char *const sharded_words[] = {"auto", "true", "false", NULL};
static const char *const devices_[] = {"auto", "cpu", "cuda", NULL};
static const char *const stats_words[] = {"on", "off", "no-stack", NULL};

#define AT(field) .off = offsetof(struct config, field)
#define ROW(n, t, field, to, what)                                                                 \
    .name = (n), .type = FLAG_##t, AT(field), .tag = (to), .help = (what)
#define BETWEEN(lo, hi) .min = (lo), .max = (hi)

/* clang-format off */
static const struct flag rows[] = {
    {ROW("model-id", STR, model_id, 0, "The model: a local directory, a GGUF file (or a directory with one), or a repository of the Hugging Face hub, which is downloaded unless it is in the cache (org/name:Q4_K_M selects one of its GGUF models)."), .def = "bigscience/bloom-560m", .heading = "Model"},
    {ROW("revision", STR, revision, TO_ROUTER | TO_SHARD, "Branch, tag or commit of the repository.")},
    {OPTION_MMPROJ, AT(mmproj), .tag = TO_ROUTER | TO_SHARD},
    {ROW("huggingface-hub-cache", STR, hub_cache, TO_SHARD_ENV | TO_DOWNLOAD_ENV | TO_ROUTER_ENV, "Directory of the hub cache.")},
    {ROW("weights-cache-override", STR, weights_cache, TO_SHARD_ENV | TO_DOWNLOAD_ENV | TO_ROUTER_ENV, "Directory used as the model, whatever --model-id is; nothing is downloaded for it.")},
    {OPTION_SERVED_MODEL_NAME, AT(served_model_name), .tag = TO_ROUTER},
    {ROW("task", ENUM, task, TO_SHARD, "Task of the model: `generate`; `embed`, vectors; `rerank`, scores of pairs; `fill-mask`, words in place of a masked one. `auto` detects it from the files: modules.json and encoders mean embed, classifiers with one label rerank, all others generate."), .choices = model_task_choices, .env = "MODEL_TASK"},
    {ROW("pooling", ENUM, pooling, TO_SHARD, "Pooling of a model that embeds: `cls`, `mean`, `last` or `last-token` of its tokens' hidden states; `splade`, sparse vectors of the logits of its head for masked tokens; `lexical`, those of BGE-M3's `sparse_linear.pt`; `colbert`, vectors of tokens of its `colbert_linear.pt`. `auto`: by its files."), .choices = sentence_pooling_choices, .env = "POOLING"},
    {ROW("cutoff-layer", U32, cutoff_layer, TO_SHARD, "Number of layers that a layerwise reranker (bge-reranker-v2-minicpm-layerwise) computes, and behind which its score is: its `cutoff_layers`. 0: all."), .def = "0", .unit = "layers"},
    {OPTION_TOKENIZER_CONFIG_PATH, AT(tokenizer_config_path), .tag = TO_ROUTER},
    {OPTION_GENERATION_CONFIG, AT(generation_config), .tag = TO_ROUTER},
    {OPTION_OVERRIDE_GENERATION_CONFIG, AT(override_generation_config), .tag = TO_ROUTER},
    {ROW("rope-scaling", ENUM, rope_scaling, TO_SHARD_ENV, "Stretch the rotary positions beyond what the checkpoint was trained for."), .choices = ropes},
    {ROW("rope-factor", F64, rope_factor, TO_SHARD_ENV, "Factor of --rope-scaling. Alone it implies --rope-scaling linear.")},
    {OPTION_TRUST_REMOTE_CODE, AT(trust_remote_code), .tag = TO_ROUTER | TO_SHARD | TO_DOWNLOAD},
    {OPTION_MODELS_FOLDER, AT(models_folder), .tag = TO_ROUTER},
    {OPTION_MAX_LOADED_MODELS, AT(max_loaded_models), .tag = TO_ROUTER},
    {ROW("hostname", STR, hostname, 0, "Address to listen on; `localhost`: 127.0.0.1 and ::1; `::`: IPv6 and IPv4."), .def = "0.0.0.0", .heading = "HTTP"},
    {ROW("port", U32, port, TO_ROUTER, "Port to listen on."), .letter = 'p', .def = "3000", BETWEEN(1, 65535)},
    {ROW("api-key", STR, api_key, 0, "API key that clients must send as a bearer token; several are separated by commas. Prefer the variable API_KEY: every user can read command lines.")},
    {OPTION_API_KEY_FILE, AT(api_key_file), .tag = TO_ROUTER},
    {OPTION_API_KEY_ALL_ROUTES, AT(api_key_all_routes), .tag = TO_ROUTER},
    {OPTION_TLS_CERT, AT(tls_cert), .tag = TO_ROUTER},
    {OPTION_TLS_KEY, AT(tls_key), .tag = TO_ROUTER},
    {OPTION_CORS_ALLOW_ORIGIN, AT(cors_allow_origin), .tag = TO_ROUTER},
    {OPTION_ROOT_PATH, AT(root_path), .tag = TO_ROUTER},
    {OPTION_PAYLOAD_LIMIT, AT(payload_limit), .tag = TO_ROUTER},
    {OPTION_TRUST_REQUEST_CHAT_TEMPLATE, AT(trust_request_chat_template), .tag = TO_ROUTER},
    {OPTION_SPECIAL_TOKENS_IN_MESSAGES, AT(special_tokens_in_messages), .tag = TO_ROUTER},
    {OPTION_DISABLE_GRAMMAR_SUPPORT, AT(disable_grammar_support), .tag = TO_ROUTER},
    {OPTION_JSON_WHITESPACE, AT(json_whitespace), .tag = TO_ROUTER},
    {OPTION_RESPONSE_STORE, AT(response_store), .tag = TO_ROUTER},
    {OPTION_RESPONSE_STORE_BYTES, AT(response_store_bytes), .tag = TO_ROUTER},
    {OPTION_RESPONSE_STORE_COUNT, AT(response_store_count), .tag = TO_ROUTER},
    {OPTION_RESPONSE_STORE_TTL, AT(response_store_ttl), .tag = TO_ROUTER},
    {OPTION_LMTP_LISTEN, AT(lmtp_listen), .tag = TO_ROUTER},
    {OPTION_LMTP_MODEL_ALIAS, AT(lmtp_model_alias), .tag = TO_ROUTER},
    {OPTION_LMTP_MAX_MESSAGE, AT(lmtp_max_message), .tag = TO_ROUTER},
    {OPTION_LMTP_GRACE, AT(lmtp_grace), .tag = TO_ROUTER},
    {ROW("device", ENUM, device, TO_SHARD, "Device to compute on. `auto`: CUDA if the plugin and a device are available, otherwise CPU."), .choices = devices_, .heading = "Devices, shards and machines"},
    {ROW("threads", U32, threads, 0, "Threads of each shard. Unset: the cores this process may use, divided by the number of shards."), BETWEEN(1, 4096), .unit = "threads"},
    {ROW("num-shard", U32, num_shard, 0, "Number of shards the model is split into, on all machines together. Unset: one per visible device, or 1, on each machine."), BETWEEN(1, SHARDS_MAX), .unit = "shards"},
    {ROW("sharded", ENUM, sharded, 0, "Whether to split the model over several shards. With `true` and without --num-shard: one shard per visible device."), .choices = sharded_words},
    {ROW("tensor-parallel-size", U32, tensor_parallel_size, 0, "Shards of each pipeline stage, as vLLM counts them. It sets --num-shard to this number times --pipeline-parallel-size."), BETWEEN(1, SHARDS_MAX), .unit = "shards"},
    {OPTION_PIPELINE_PARALLEL_SIZE, AT(pipeline_parallel_size), .tag = TO_SHARD_ENV},
    {OPTION_ENABLE_EXPERT_PARALLEL, AT(enable_expert_parallel), .tag = TO_SHARD_ENV},
    {ROW("replicas", U32, replicas, 0, "Number of groups of --num-shard shards on this machine, behind one router. Requests are sent to the group that has cached their prefix, and resume on another one after a loss. Cores, devices and free memory are divided among them. 0: only the groups of --replica-address and --replica-discovery."), .def = "1", BETWEEN(0, REPLICAS_MAX), .unit = "groups"},
    {ROW("replica-address", LIST, replica_address, 0, REPLICA_ADDRESS_HELP)},
    {OPTION_REPLICA_DISCOVERY, AT(replica_discovery), .tag = TO_ROUTER},
    {OPTION_REPLICA_POLICY, AT(replica_policy), .tag = TO_ROUTER},
    {OPTION_NNODES, AT(nnodes), .tag = TO_SHARD_ENV},
    {ROW("node-rank", U32, node_rank, 0, "Number of this machine, from 0. The router runs on machine 0."), .def = "0", BETWEEN(0, 63)},
    {OPTION_MASTER_ADDR, AT(master_addr), .tag = 0},
    {ROW("master-port", U32, master_port, 0, "Port on which ranks on several machines connect; rank r of a machine other than 0 listens for the router on this port + 1 + r."), .def = "29500", BETWEEN(1, 65535)},
    {OPTION_RENDEZVOUS_TIMEOUT, AT(rendezvous_timeout), .tag = TO_SHARD_ENV},
    {OPTION_CLUSTER_CERT, AT(cluster.cert), .tag = TO_ROUTER | TO_SHARD},
    {OPTION_CLUSTER_KEY, AT(cluster.key), .tag = TO_ROUTER | TO_SHARD},
    {OPTION_CLUSTER_CA, AT(cluster.ca), .tag = TO_ROUTER | TO_SHARD},
    {OPTION_CLUSTER_SECRET_FILE, AT(cluster.secret_file), .tag = TO_ROUTER | TO_SHARD},
    {ROW("dtype", ENUM, dtype, TO_SHARD, "Type of the weights. `auto`: as in the checkpoint, with computation in fp32. With an explicit float16 or bfloat16 the CPU may also compute in that type, if that is faster."), .choices = dtypes, .heading = "Number types"},
    {ROW("quantize", ENUM, quantize, TO_SHARD, "Quantise the weights at load: eetq (or int8: 8-bit weights), w8a8 (8-bit weights and activations), int4, fp8 (8-bit floating point). `auto`: as the checkpoint is. For quantised checkpoints gptq, awq, marlin, fp8, compressed-tensors and bitsandbytes (-nf4, -fp4) must match the stored format. Other schemes are not supported."), .choices = quantizers},
    {OPTION_ACTIVATIONS, AT(activations), .tag = TO_SHARD},
    {ROW("kv-cache-dtype", ENUM, kv_cache_dtype, TO_SHARD, "Type of the KV cache. `auto`: as the model. `int8` and `fp8` (e4m3; also `fp8_e4m3`, `fp8_e4m3fn`) need half the memory of 16 bits; int8 is the more accurate one. fp8_e5m2 is not supported. `int4` needs a quarter, with less accuracy."), .choices = kv_dtypes},
    {OPTION_CUDA_MEMORY_FRACTION, AT(cuda_memory_fraction), .tag = TO_SHARD_ENV, .heading = "Memory and caches"},
    {OPTION_KV_CACHE_MEMORY, AT(kv_cache_memory), .tag = TO_SHARD},
    {OPTION_SWAP_SPACE, AT(swap_space), .tag = TO_SHARD},
    {OPTION_CONSTRAINT_MEMORY, AT(constraint_memory), .tag = TO_SHARD},
    {OPTION_KV_OFFLOAD_DIR, AT(kv_offload_dir), .tag = TO_SHARD},
    {OPTION_KV_OFFLOAD_SIZE, AT(kv_offload_size), .tag = TO_SHARD},
    {OPTION_KV_OFFLOAD_MEMORY, AT(kv_offload_memory), .tag = TO_SHARD},
    {OPTION_KV_TRANSFER_ADDRESS, AT(kv_transfer_address), .tag = TO_ROUTER | TO_SHARD},
    {OPTION_KV_EVENTS_CONFIG, AT(kv_events_config), .tag = TO_ROUTER},
    {OPTION_PACKED_CACHE, AT(packed_cache), .tag = TO_SHARD},
    {OPTION_PACKED_CACHE_SIZE, AT(packed_cache_size), .tag = TO_SHARD},
    {ROW("max-total-tokens", U32, max_total_tokens, TO_ROUTER | TO_SHARD_ENV, "Maximum length of prompt and answer together. Unset: as model and memory allow."), .unit = "tokens", .heading = "Limits of a request"},
    {ROW("max-input-tokens", U32, max_input_tokens, TO_ROUTER | TO_SHARD, "Maximum length of a prompt, after tokenization. Unset: as model and memory allow."), .unit = "tokens"},
    {ROW("max-input-length", U32, max_input_length, 0, "Old name of --max-input-tokens."), .unit = "tokens"},
    {OPTION_MAX_CONCURRENT_REQUESTS, AT(max_concurrent_requests), .tag = TO_ROUTER},
    {OPTION_MAX_BEST_OF, AT(max_best_of), .tag = TO_ROUTER},
    {OPTION_MAX_STOP_SEQUENCES, AT(max_stop_sequences), .tag = TO_ROUTER},
    {OPTION_MAX_TOP_N_TOKENS, AT(max_top_n_tokens), .tag = TO_ROUTER},
    {OPTION_MAX_CLIENT_BATCH_SIZE, AT(max_client_batch_size), .tag = TO_ROUTER},
    {OPTION_MAX_IMAGES, AT(max_images), .tag = TO_ROUTER},
    {OPTION_MAX_IMAGE_PIXELS, AT(max_image_pixels), .tag = TO_ROUTER},
    {OPTION_ALLOW_IMAGE_URLS, AT(allow_image_urls), .tag = TO_ROUTER},
    {OPTION_ALLOWED_MEDIA_DOMAINS, AT(allowed_media_domains), .tag = TO_ROUTER},
    {OPTION_MAX_IMAGE_FETCH_SIZE, AT(max_image_fetch_size), .tag = TO_ROUTER},
    {ROW("max-batch-size", U32, max_batch_size, TO_ROUTER | TO_SHARD_ENV, "Maximum number of requests in a batch. Unset: unlimited."), .unit = "requests", .heading = "Scheduling"},
    {OPTION_MAX_BATCH_PREFILL_TOKENS, AT(max_batch_prefill_tokens), .tag = TO_ROUTER},
    {OPTION_MAX_BATCH_TOTAL_TOKENS, AT(max_batch_total_tokens), .tag = TO_ROUTER},
    {OPTION_TARGET_INTER_TOKEN_MS, AT(target_inter_token_ms), .tag = TO_ROUTER},
    {OPTION_TARGET_INTER_TOKEN_FACTOR, AT(target_inter_token_factor), .tag = TO_ROUTER},
    {OPTION_MAX_WAITING_TOKENS, AT(max_waiting_tokens), .tag = TO_ROUTER},
    {OPTION_WAITING_SERVED_RATIO, AT(waiting_served_ratio), .tag = TO_ROUTER},
    {OPTION_VALIDATION_WORKERS, AT(validation_workers), .tag = TO_ROUTER},
    {ROW("enable-prefill-logprobs", BOOL, prefill_logprobs, 0, "Compute log-probabilities of prompt tokens for requests that ask for details.")},
    {ROW("speculate", U32, speculate, TO_SHARD, "Speculative decoding: maximum number of draft tokens verified per request and step; fewer are used if that is faster. Drafts come from n-grams of the text, from draft heads of the checkpoint (multi-token prediction), from --draft-heads or --draft-model-id. Answers do not change. Unset: 8 with a draft model, 4 with --draft-heads, otherwise none."), .unit = "tokens", .heading = "Speculative decoding"},
    {ROW("draft-heads", STR, draft_heads, TO_SHARD, "Folder of draft heads for this model, which the shards load with it: EAGLE-3 or EAGLE (the layout of SpecForge, vLLM and SGLang), or Medusa (`medusa_lm_head.safetensors`).")},
    {ROW("draft-model-id", STR, draft_model_id, 0, "A smaller model with the same vocabulary that drafts tokens, in a separate process. It is optional at run time: the server does not wait for it, and restarts it after a crash.")},
    {ROW("draft-shard-uds-path", STR, draft_shard_uds_path, TO_ROUTER, "Instead of --draft-model-id: address of a draft model that is started separately, possibly on another machine (`model-server serve MODEL --uds-path tcp://0.0.0.0:PORT` there, `tcp://HOST:PORT` here).")},
    {ROW("draft-quantize", ENUM, draft_quantize, 0, "As --quantize, for the draft model."), .choices = quantizers},
    {ROW("draft-device", ENUM, draft_device, 0, "As --device, for the draft model. `auto`: as --device."), .choices = devices_},
    {ROW("draft-threads", U32, draft_threads, 0, "Threads of the draft model. Unset: a quarter of the cores, which the shards then do not use."), BETWEEN(1, 4096), .unit = "threads"},
    {ROW("draft-kv-cache-memory", F64, draft_kv_cache_memory, 0, "As --kv-cache-memory, for the draft model."), .unit = "fraction or bytes", .def = "0.25", BETWEEN(0, 1e18)},
    {OPTION_LORA_ADAPTERS, AT(lora_adapters), .tag = TO_SHARD_ENV, .heading = "LoRA adapters"},
    {OPTION_MAX_RUNTIME_ADAPTERS, AT(max_runtime_adapters), .tag = TO_SHARD},
    {OPTION_ADAPTER_MEMORY_FRACTION, AT(adapter_memory_fraction), .tag = TO_SHARD},
    {ROW("log-level", STR, log_level, 0, "error, warn, info, debug or trace."), .def = "info", .heading = "Logs and traces"},
    {ROW("json-output", BOOL, json_output, 0, "Log lines as JSON instead of text.")},
    {OPTION_OTLP_ENDPOINT, AT(otlp_endpoint), .tag = TO_ROUTER | TO_SHARD},
    {ROW("otlp-service-name", STR, otlp_service_name, TO_ROUTER | TO_SHARD, "Service name of the traces."), .def = "text-generation-inference.router"},
    {ROW("dry-run", BOOL, dry_run, 0, "Start nothing: print the memory each rank of this machine would need (weights, KV cache, workspaces, adapters), the resulting limits and the command lines, and exit. Downloads nothing and keeps no weights. With --json-output: one JSON object. Exit status: 0 it fits, 78 it does not, 1 unknown, 2 wrong options."), .env = "", .heading = "Start, failures and stop"},
    {ROW("env", BOOL, env, 0, "Print versions, system and devices for a bug report, and exit."), .letter = 'e', .env = ""},
    {ROW("startup-timeout", U32, startup_timeout, 0, "Timeout for the shards' start; 0: none."), .def = "600", .unit = "seconds"},
    {ROW("max-shard-restarts", U32, max_shard_restarts, 0, "Maximum number of restarts per hour of crashed shards. The router keeps running and its streams resume. After that, and with 0, the service ends. If a restarted shard fails to load, the next start waits 2, 4, 8 ... s. If a shard is killed (SIGKILL, as when memory runs out; SIGTERM, too, of a model loaded on demand) during the first load, that is tried once more; a load that failed is not. Each of several machines restarts its own, and they connect again within `--rendezvous-timeout`."), .def = "3", .max = 1000},
    {OPTION_STALL_TIMEOUT, AT(stall_timeout), .tag = TO_SHARD},
    {ROW("heartbeat-timeout", U32, heartbeat_timeout, 0, "A child process without heartbeats and CPU usage for this time is killed as frozen, and a shard is restarted; 0: never. The timeout is extended if the launcher itself is delayed."), .def = "3", .max = 3600, .unit = "seconds"},
    {OPTION_WATCHDOG_SECONDS, AT(watchdog_seconds), .tag = TO_ROUTER | TO_SHARD},
    {ROW("graceful-termination-timeout", U32, graceful_termination_timeout, 0, "How long running requests may take to finish after SIGTERM."), .letter = 'g', .def = "90", .unit = "seconds"},
    {ROW("shard-uds-path", STR, shard_uds_path, 0, "Sockets of the shards: rank r listens on `<path>-<r>`. Unset: /tmp/text-generation-server-<port>.")},
    {ROW("cuda-graphs", LIST, cuda_graphs, TO_SHARD_ENV, "Batch sizes captured as CUDA graphs; 0 turns them off."), .def = "1,2,4,8,16,32", .heading = "Rarely needed"},
    {ROW("disable-custom-kernels", BOOL, disable_custom_kernels, TO_SHARD_ENV, "Use reference kernels only, for debugging.")},
    {ROW("watermark-gamma", F64, watermark_gamma, TO_SHARD_ENV, "Fraction of the vocabulary that a watermark favours.")},
    {ROW("watermark-delta", F64, watermark_delta, TO_SHARD_ENV, "Bias that a watermark adds to the logits of favoured tokens.")},
    {ROW("usage-stats", ENUM, usage_stats, TO_ROUTER, "Accepted for compatibility. Nothing is ever sent."), .def = "off", .choices = stats_words},
    {OPTION_PROMETHEUS_PORT, AT(prometheus_port), .tag = TO_ROUTER},
    {ROW("ngrok", BOOL, ngrok, 0, "Not supported: use a tunnel of your choice.")},
    {ROW("ngrok-authtoken", STR, ngrok_authtoken, 0, "Not supported.")},
    {ROW("ngrok-edge", STR, ngrok_edge, 0, "Not supported.")},
    {0},
};
/* clang-format on */

static const struct flag_command commands[] = {
    {"serve", "Serve a model with the options below; the word may be left out."},
    {"health", "Wait until a shard is ready."},
    {"lmtp", "Send lines as LMTP requests and print the answers."},
    {0},
};
const struct flag_program launcher_flags = {"launcher",
                                            "Serve a language model: starts one model-server per "
                                            "shard and a router, watches over them, and stops "
                                            "them in order.",
                                            rows, commands, foreign_options};

static int invalid(struct err *e, const char *what)
{
    return err_set(e, ERR_VALIDATION, "Invalid argument: %s", what);
}

/* Number of shards on all machines. `devices`: what the machine or its environment has; -1:
 * unknown. */
static int flags_num_shard(const struct config *c, int devices, uint32_t *out, struct err *e)
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

/* vLLM counts the shards of a stage, TGI those of all stages. */
static int check_tensor_parallel(struct config *c, struct err *e)
{
    const uint32_t all = c->tensor_parallel_size * c->pipeline_parallel_size;
    if (all && c->num_shard && c->num_shard != all)
        return err_set(
            e, ERR_VALIDATION,
            "Invalid argument: `num_shard` (%u) is not `tensor_parallel_size` (%u) times "
            "`pipeline_parallel_size` (%u): give one of the two",
            c->num_shard, c->tensor_parallel_size, c->pipeline_parallel_size);
    if (all)
        c->num_shard = all;
    return 0;
}

/* As many shards as stages, unless the number is set elsewhere. */
static int check_stages(struct config *c, bool counted, struct err *e)
{
    const uint32_t stages = c->pipeline_parallel_size;
    assert(stages > 0); /* its row has a least value, as that of nnodes */
    if (!counted && c->num_shard < stages)
        c->num_shard = stages;
    if (c->num_shard % stages)
        return err_set(e, ERR_VALIDATION,
                       "Invalid argument: `num_shard` (%u) must be a multiple of "
                       "`pipeline_parallel_size` (%u)",
                       c->num_shard, stages);
    if (stages > 1 && c->draft_heads && *c->draft_heads)
        return invalid(e, "`draft_heads` and `pipeline_parallel_size` do not go together yet");
    return 0;
}

static int check_nodes(const struct config *c, struct err *e)
{
    assert(c->nnodes > 0);
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

static bool given(const char *s) { return s && *s; }

/* Devices per replica; -1: unknown. */
static int devices_each(const struct config *c, int devices)
{
    return devices > 0 && c->replicas > 1 ? devices / (int)c->replicas : devices;
}

static int check_replicas(const struct config *c, int devices, struct err *e)
{
    const bool several =
        c->replicas != 1 || c->replica_address.n > 0 || given(c->replica_discovery);
    if (!several)
        return 0;
    if (c->replicas == 0 && c->replica_address.n == 0 && !given(c->replica_discovery))
        return invalid(e, "`replicas` is 0 and no other one is named");
    if (devices > 0 && c->device != DEVICE_CPU && c->replicas > (uint32_t)devices)
        return err_set(e, ERR_VALIDATION,
                       "Invalid argument: `replicas` (%u) is more than there are devices (%d)",
                       c->replicas, devices);
    if (c->nnodes > 1)
        return invalid(e, "replicas and one model over several machines (`nnodes`) do not go "
                          "together: name the other groups by `replica_address`");
    if (c->draft_model_id || c->draft_shard_uds_path)
        return invalid(e, "several replicas take no draft model");
    return 0;
}

static int check_cluster(const struct config *c, struct err *e)
{
    const enum cluster_kind kind = cluster_kind_of(&c->cluster);
    if (cluster_flags_check(&c->cluster, e) ||
        (c->nnodes > 1 && cluster_allows(kind, c->master_addr, e)) ||
        (c->draft_shard_uds_path && cluster_allows(kind, c->draft_shard_uds_path, e)))
        return err_wrap(e, "Invalid argument");
    for (uint32_t i = 0; i < c->replica_address.n; i++)
        if (cluster_allows(kind, c->replica_address.v[i], e))
            return err_wrap(e, "Invalid argument");
    return 0;
}

static int check_transfer(const struct config *c, struct err *e)
{
    struct peer_address a;
    if (!given(c->kv_transfer_address))
        return 0;
    if (peer_address_parse(c->kv_transfer_address, c->num_shard, &a, e) ||
        cluster_allows(cluster_kind_of(&c->cluster), c->kv_transfer_address, e))
        return err_wrap(e, "Invalid argument: `kv_transfer_address`");
    if (c->replicas != 1 || c->replica_address.n || given(c->replica_discovery))
        return invalid(e, "`kv_transfer_address` is one group's: replicas are services of their "
                          "own there");
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
    const bool counted = c->num_shard > 0 || c->tensor_parallel_size > 0;
    if (check_tensor_parallel(c, e) || check_replicas(c, devices, e) ||
        flags_num_shard(c, devices_each(c, devices), &c->num_shard, e) ||
        check_stages(c, counted, e) || check_nodes(c, e) || check_cluster(c, e) ||
        check_transfer(c, e))
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
    if (c->api_key && !*c->api_key)
        return invalid(e, "`api_key` is empty: leave it out to serve without keys");
    if (check_lora(c, e))
        return -1;
    if (c->draft_model_id && c->draft_shard_uds_path)
        return invalid(e, "`draft_model_id` and `draft_shard_uds_path`: give one of them");
    if ((c->draft_model_id || c->draft_shard_uds_path) && !c->speculate)
        c->speculate = 8;
    if (c->draft_heads && !c->speculate)
        c->speculate = 4;
    /* linear */
    if (c->rope_factor > 0 && !c->rope_scaling)
        c->rope_scaling = 1;
    if (c->rope_scaling && c->rope_factor == 0)
        c->rope_factor = 1;
    return 0;
}

const char *flags_bind_address(const char *hostname)
{
    struct listen_addresses a;
    return listen_addresses(hostname, &a) ? hostname : "0.0.0.0";
}
