/* options.h - options shared by several programs: name, type, default, range, unit and help are
 * defined here once. A program's table adds the field:
 *
 *     {OPTION_MAX_BEST_OF, F(max_best_of)}, */
#ifndef COMMON_OPTIONS_H
#define COMMON_OPTIONS_H
#include "common/cluster.h"
#include "common/flag.h"

/* clang-format off */
static const char *const option_whitespace[] = {"indented", "compact", NULL};
static const char *const option_activations[] = {"auto", "exact", "16", "8", NULL};
static const char *const option_replica_policy[] = {"prefix", "round-robin", NULL};

#define OPTION_VALIDATION_WORKERS \
    .name = "validation-workers", .type = FLAG_U32, .def = "2", .min = 0, .max = 256, \
    .help = "Threads that parse, tokenize and validate requests."
#define OPTION_TRUST_REMOTE_CODE \
    .name = "trust-remote-code", .type = FLAG_BOOL, \
    .help = "Accepted for compatibility. No code from a model repository is ever run."
#define OPTION_MAX_CONCURRENT_REQUESTS \
    .name = "max-concurrent-requests", .type = FLAG_U32, .def = "128", .unit = "requests", .min = 1, .max = 100000, \
    .help = "Generations that may be waiting or running; more are refused with status 429. API keys share them: a key within its part is not refused because of the others."
#define OPTION_MAX_BEST_OF \
    .name = "max-best-of", .type = FLAG_U32, .def = "2", .min = 1, .max = 128, \
    .help = "Largest `best_of` of a request; on `/v1` at least 128."
#define OPTION_MAX_STOP_SEQUENCES \
    .name = "max-stop-sequences", .type = FLAG_U32, .def = "4", \
    .help = "Most stop sequences of a request; on `/v1` at least 16."
#define OPTION_MAX_TOP_N_TOKENS \
    .name = "max-top-n-tokens", .type = FLAG_U32, .def = "5", \
    .help = "Largest `top_n_tokens` of a request; `top_logprobs` on `/v1` may be at least 20."
#define OPTION_WAITING_SERVED_RATIO \
    .name = "waiting-served-ratio", .type = FLAG_F64, .def = "0.3", .min = 0, .max = 1e6, \
    .help = "Waiting requests per running one from which on the running batch is interrupted."
#define OPTION_MAX_BATCH_PREFILL_TOKENS \
    .name = "max-batch-prefill-tokens", .type = FLAG_U32, .def = "4096", .unit = "tokens", \
    .help = "Most prompt tokens computed in one step."
#define OPTION_MAX_BATCH_TOTAL_TOKENS \
    .name = "max-batch-total-tokens", .type = FLAG_U32, .unit = "tokens", \
    .help = "Most tokens that all running requests hold together. Default: as many as memory has room for, measured at warm-up."
#define OPTION_TARGET_INTER_TOKEN_MS \
    .name = "target-inter-token-ms", .type = FLAG_U32, .def = "200", .unit = "milliseconds", \
    .help = "While answers are streamed, a step takes so many prompt tokens that the next token comes in this time, or in twice what it takes without prompts. 0: as many as --max-batch-prefill-tokens."
#define OPTION_MAX_WAITING_TOKENS \
    .name = "max-waiting-tokens", .type = FLAG_U32, .def = "20", .unit = "steps", \
    .help = "Decode steps after which waiting requests are let in regardless of --waiting-served-ratio."
#define OPTION_PROMETHEUS_PORT \
    .name = "prometheus-port", .type = FLAG_U32, .def = "9000", .min = 1, .max = 65535, \
    .help = "Accepted for compatibility: metrics are at /metrics of --port."
#define OPTION_NNODES \
    .name = "nnodes", .type = FLAG_U32, .def = "1", .unit = "machines", .min = 1, .max = 64, \
    .help = "Machines that the model is split over, with as many shards on each. The launcher is started on every one of them with the same options."
#define OPTION_MASTER_ADDR \
    .name = "master-addr", .type = FLAG_STR, .def = "localhost", \
    .help = "Where ranks on several machines meet: name or address of machine 0."
#define OPTION_RENDEZVOUS_TIMEOUT \
    .name = "rendezvous-timeout", .type = FLAG_U32, .def = "120", .unit = "seconds", .min = 1, .max = 86400, \
    .help = "How long ranks on several machines wait for each other, when they meet and later."
#define OPTION_CLUSTER_CERT \
    .name = "cluster-cert", .type = FLAG_STR, \
    .help = CLUSTER_CERT_HELP
#define OPTION_CLUSTER_KEY \
    .name = "cluster-key", .type = FLAG_STR, \
    .help = CLUSTER_KEY_HELP
#define OPTION_CLUSTER_CA \
    .name = "cluster-ca", .type = FLAG_STR, \
    .help = CLUSTER_CA_HELP
#define OPTION_CLUSTER_SECRET_FILE \
    .name = "cluster-secret-file", .type = FLAG_STR, \
    .help = CLUSTER_SECRET_HELP
#define OPTION_CUDA_MEMORY_FRACTION \
    .name = "cuda-memory-fraction", .type = FLAG_F64, .def = "1.0", .min = 0.01, .max = 1, \
    .help = "Share of the device's memory that this service may use."
#define OPTION_OTLP_ENDPOINT \
    .name = "otlp-endpoint", .type = FLAG_STR, \
    .help = "OpenTelemetry collector (OTLP over gRPC, `http://host:4317`) that gets the spans of requests, of the router and of each shard. Default: none."
#define OPTION_MODELS_FOLDER \
    .name = "models-folder", .type = FLAG_STR, \
    .help = "Folder of more models: a request may name one by its path there, and it is loaded on demand."
#define OPTION_MAX_LOADED_MODELS \
    .name = "max-loaded-models", .type = FLAG_U32, .def = "1", .unit = "models", .min = 1, .max = 64, \
    .help = "Most models of --models-folder that are loaded at the same time; the least recently used one that is idle is unloaded."
#define OPTION_LMTP_LISTEN \
    .name = "lmtp-listen", .type = FLAG_STR, \
    .help = "Also speak LMTP as lines here: `unix:/path` or `host:port`."
#define OPTION_LMTP_MODEL_ALIAS \
    .name = "lmtp-model-alias", .type = FLAG_LIST, \
    .help = "Other names that LMTP clients may call the model; `*`: any."
#define OPTION_LMTP_MAX_MESSAGE \
    .name = "lmtp-max-message", .type = FLAG_U32, .def = "4194304", .unit = "bytes", .min = 1024, .max = 1 << 30, \
    .help = "Longest LMTP message of a client."
#define OPTION_LMTP_GRACE \
    .name = "lmtp-grace", .type = FLAG_U32, .def = "30", .unit = "seconds", .max = 3600, \
    .help = "How long an LMTP stream with a `session` is kept for a client that comes back; 0: never."
#define OPTION_CORS_ALLOW_ORIGIN \
    .name = "cors-allow-origin", .type = FLAG_LIST, \
    .help = "Origin that browsers may call from; may be repeated."
#define OPTION_API_KEY_FILE \
    .name = "api-key-file", .type = FLAG_STR, \
    .help = "File with a key a line, as well as --api-key; what follows a key after a blank is the name that logs call its holder; lines that begin with # do not count."
#define OPTION_TLS_CERT \
    .name = "tls-cert", .type = FLAG_STR, \
    .help = "Serve HTTPS with the certificate (and the chain behind it) in this PEM file. SIGHUP reads it again."
#define OPTION_TLS_KEY \
    .name = "tls-key", .type = FLAG_STR, \
    .help = "PEM file with its private key."
#define OPTION_TOKENIZER_CONFIG_PATH \
    .name = "tokenizer-config-path", .type = FLAG_STR, \
    .help = "A tokenizer_config.json to take the chat template from, instead of the model's."
#define OPTION_DISABLE_GRAMMAR_SUPPORT \
    .name = "disable-grammar-support", .type = FLAG_BOOL, \
    .help = "Refuse requests that constrain the answer by a grammar."
#define OPTION_JSON_WHITESPACE \
    .name = "json-whitespace", .type = FLAG_ENUM, .def = "indented", .choices = option_whitespace, \
    .help = "White space between the tokens of constrained JSON: `indented` (at most one blank, or one line break with its indentation) or `compact` (none). Schemas with `strict` are always compact."
#define OPTION_TRUST_REQUEST_CHAT_TEMPLATE \
    .name = "trust-request-chat-template", .type = FLAG_BOOL, \
    .help = "Use the `chat_template` of a request; without it such a request is refused."
#define OPTION_MAX_CLIENT_BATCH_SIZE \
    .name = "max-client-batch-size", .type = FLAG_U32, .def = "4", \
    .help = "Most inputs in one request; on `/v1/completions` at least 2048 prompts."
#define OPTION_LORA_ADAPTERS \
    .name = "lora-adapters", .type = FLAG_LIST, \
    .help = "LoRA adapters to serve beside the model: `id`, `id@revision`, `name=path` or `name=path@revision`. Requests name one by `adapter_id` or `model`."
#define OPTION_MAX_RUNTIME_ADAPTERS \
    .name = "max-runtime-adapters", .type = FLAG_U32, .def = "0", .unit = "adapters", .min = 0, .max = 1024, \
    .help = "Adapters that may be loaded while the server runs, by `POST /v1/load_lora_adapter`, beside those of `--lora-adapters`. The memory for adapters is then reserved at the start. Requests whose `model` is no model and no adapter are then refused."
#define OPTION_ADAPTER_MEMORY_FRACTION \
    .name = "adapter-memory-fraction", .type = FLAG_F64, .def = "0.1", .min = 0, .max = 1, \
    .help = "Share of the memory that is free beside the weights for adapters on the device; others wait in host memory for their turn."
#define OPTION_RESPONSE_STORE \
    .name = "response-store", .type = FLAG_STR, \
    .help = "Folder for the responses of `/v1/responses`, which can then be continued (`previous_response_id`), read, deleted, and made in the background. One router at a time has it. Default: nothing is stored."
#define OPTION_RESPONSE_STORE_BYTES \
    .name = "response-store-bytes", .type = FLAG_U64, .def = "1073741824", .unit = "bytes", .min = 1024, .max = 1e15, \
    .help = "What the stored responses may take; those that were unused for longest are deleted."
#define OPTION_RESPONSE_STORE_COUNT \
    .name = "response-store-count", .type = FLAG_U32, .def = "100000", .unit = "responses", .min = 1, .max = 1e9, \
    .help = "Most stored responses."
#define OPTION_RESPONSE_STORE_TTL \
    .name = "response-store-ttl", .type = FLAG_U32, .def = "2592000", .unit = "seconds", .min = 1, .max = 1e9, \
    .help = "A stored response that no request continues for so long is deleted."
#define OPTION_PAYLOAD_LIMIT \
    .name = "payload-limit", .type = FLAG_U32, .def = "2000000", .unit = "bytes", \
    .help = "Largest request body."
#define OPTION_ACTIVATIONS \
    .name = "activations", .type = FLAG_ENUM, .def = "auto", .choices = option_activations, \
    .help = "Fewest bits that products may round activations to: `exact` (none is rounded: fp32), `16` (to the weights' type, where the device is faster so) or `8` (with a scale for 32 columns, beside weights that are packed in 8 bits or fewer). `auto`: 8 beside packed weights (GGUF, GPTQ, AWQ, MXFP4) on CPUs, unless --dtype is given; else what --dtype and --quantize mean."
#define OPTION_KV_CACHE_MEMORY \
    .name = "kv-cache-memory", .type = FLAG_F64, .def = "0", .min = 0, .max = 1e18, \
    .help = "Limit of the KV cache of each shard: up to 1 a share of the free memory, above that bytes; 0: all that is free."
#define OPTION_SWAP_SPACE \
    .name = "swap-space", .type = FLAG_F64, .def = "0", .unit = "GiB", .min = 0, .max = 1e6, \
    .help = "Host memory of each shard for the KV blocks of requests that are preempted; 0: what they held is computed again."
#define OPTION_KV_EVENTS_CONFIG \
    .name = "kv-events-config", .type = FLAG_STR, \
    .help = "Publish which prompts are cached, for gateways that route by it: vLLM's KV events over ZeroMQ, and vLLM's JSON, as " \
            "`{\"endpoint\": \"tcp://*:5557\", \"replay_endpoint\": \"tcp://*:5558\", \"topic\": \"\"}` (also `hwm`, `buffer_steps`, " \
            "`max_queue_size`)."
#define OPTION_KV_OFFLOAD_DIR \
    .name = "kv-offload-dir", .type = FLAG_STR, \
    .help = "A folder where the KV blocks of prompts are kept, so that a prompt that comes again, also after a restart, is read " \
            "instead of computed. Several services may share it. What is damaged, or of another model or format, is passed over."
#define OPTION_KV_OFFLOAD_SIZE \
    .name = "kv-offload-size", .type = FLAG_F64, .def = "10", .unit = "GiB", .min = 0.001, .max = 1e9, \
    .help = "Most that all files in --kv-offload-dir take together; what was used longest ago is removed."
#define OPTION_KV_OFFLOAD_MEMORY \
    .name = "kv-offload-memory", .type = FLAG_F64, .def = "0", .unit = "GiB", .min = 0, .max = 1e6, \
    .help = "Host memory of each shard for KV blocks of prompts that may leave the KV cache, in front of --kv-offload-dir or without " \
            "it. 0: 0.25 with a folder, else none."
#define OPTION_KV_TRANSFER_ADDRESS \
    .name = "kv-transfer-address", .type = FLAG_STR, \
    .help = "HOST:PORT under which services of the same model reach this one, to hand each other the KV blocks of prompts: what " \
            "`kv_transfer_params` of requests ask for (prefill and decode apart). Rank r listens on PORT + r. Blocks wait in " \
            "--kv-offload-memory, which is then 1 GiB unless it is given."
#define OPTION_PACKED_CACHE \
    .name = "packed-cache", .type = FLAG_STR, \
    .help = "A folder where the weights are kept as the CPU multiplies with them, a file for each rank: the next start maps that file " \
            "instead of reading and packing the checkpoint. Several services may share it. What is damaged, or of another model, " \
            "version or option, is passed over and written anew."
#define OPTION_PACKED_CACHE_SIZE \
    .name = "packed-cache-size", .type = FLAG_F64, .def = "100", .unit = "GiB", .min = 0.000001, .max = 1e9, \
    .help = "Most that all files in --packed-cache take together; what was used longest ago is removed."
#define OPTION_REPLICA_DISCOVERY \
    .name = "replica-discovery", .type = FLAG_STR, \
    .help = "Where replicas are found that may come and go: `dns:NAME:PORT`, every address of a name, as of a headless service; " \
            "`file:PATH`, a file with one address a line. Looked at every two seconds. One that is no longer there gets no new " \
            "requests, and is left when those that it has are done."
#define OPTION_REPLICA_POLICY \
    .name = "replica-policy", .type = FLAG_ENUM, .def = "prefix", .choices = option_replica_policy, \
    .help = "Which replica a request goes to. `prefix`: where the beginning of its prompt is cached, unless too much waits there. " \
            "`round-robin`: one after the other."
#define REPLICA_ADDRESS_HELP \
    "More groups of shards that serve the same model, by the address of rank 0 (`tcp://HOST:PORT` or HOST:PORT; there: " \
    "`model-server serve MODEL --uds-path tcp://0.0.0.0:PORT`). They need not be there yet, and may go and come back."
#define OPTION_SERVED_MODEL_NAME \
    .name = "served-model-name", .type = FLAG_STR, \
    .help = "Name of the model in answers and in /v1/models. Default: as it was given."
#define OPTION_MAX_IMAGE_FETCH_SIZE \
    .name = "max-image-fetch-size", .type = FLAG_U64, .def = "1073741824", .unit = "bytes", .min = 1, \
    .help = "Largest image that is fetched. All images of a request together have at most 256 MiB."
#define OPTION_ALLOW_IMAGE_URLS \
    .name = "allow-image-urls", .type = FLAG_BOOL, \
    .help = "Fetch images that requests name by http: and https: URLs, from public addresses, ports 80 and 443. Else images come as data: URLs only."
#define OPTION_ALLOWED_MEDIA_DOMAINS \
    .name = "allowed-media-domains", .type = FLAG_STR, \
    .help = "Fetch images from these hosts alone; several with commas between them. Implies --allow-image-urls. Default: any host."
#define OPTION_MAX_IMAGES \
    .name = "max-images", .type = FLAG_U32, .def = "100", .unit = "images", .min = 1, .max = 1000, \
    .help = "Most images of a request."
#define OPTION_MAX_IMAGE_PIXELS \
    .name = "max-image-pixels", .type = FLAG_U64, .def = "200000000", .unit = "pixels", .min = 1, \
    .help = "Most pixels of all images of a request together; one alone may have 50 million."
#define OPTION_WATCHDOG_SECONDS \
    .name = "watchdog-seconds", .type = FLAG_U32, .def = "120", .unit = "seconds", .max = 86400, \
    .help = "A thread that serves and makes no progress for so long has the stacks of all threads written to the log, with the state of scheduler or engine. 0: never."
#define OPTION_STALL_TIMEOUT \
    .name = "stall-timeout", .type = FLAG_U32, .def = "30", .unit = "seconds", .max = 86400, \
    .help = "A shard whose engine makes no progress inside a step for so long (a deadlock, a device that hangs) ends and is started again; streams go on. The time is at least 10 times the longest pause so far, and 10 times longer while the process uses CPU time. 0: never."
/* clang-format on */
#endif
