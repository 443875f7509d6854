/* options.h - options shared by several programs: name, type, default, range, unit and help are
 * defined here once. A program's table adds the field:
 *
 *     {OPTION_MAX_BEST_OF, F(max_best_of)}, */
#ifndef COMMON_FLAG_OPTIONS_H
#define COMMON_FLAG_OPTIONS_H
#include "common/flag/flag.h"
#include "common/net/cluster.h"

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
    .help = "Maximum number of waiting and running generations; more are refused with status 503 (429 on TGI's routes, and for an API key that holds its share). API keys share them fairly: a key within its share is never refused because of others."
#define OPTION_MAX_BEST_OF \
    .name = "max-best-of", .type = FLAG_U32, .def = "2", .min = 1, .max = 128, \
    .help = "Maximum `best_of` of a request; on `/v1` at least 128."
#define OPTION_MAX_STOP_SEQUENCES \
    .name = "max-stop-sequences", .type = FLAG_U32, .def = "4", \
    .help = "Maximum number of stop sequences of a request; on `/v1` at least 16."
#define OPTION_MAX_TOP_N_TOKENS \
    .name = "max-top-n-tokens", .type = FLAG_U32, .def = "5", \
    .help = "Maximum `top_n_tokens` of a request; for `top_logprobs` on `/v1` at least 20."
#define OPTION_WAITING_SERVED_RATIO \
    .name = "waiting-served-ratio", .type = FLAG_F64, .def = "0.3", .min = 0, .max = 1e6, \
    .help = "Ratio of waiting to running requests at which the running batch is interrupted for a prefill."
#define OPTION_MAX_BATCH_PREFILL_TOKENS \
    .name = "max-batch-prefill-tokens", .type = FLAG_U32, .def = "4096", .unit = "tokens", \
    .help = "Maximum number of tokens computed in one step."
#define OPTION_MAX_BATCH_TOTAL_TOKENS \
    .name = "max-batch-total-tokens", .type = FLAG_U32, .unit = "tokens", \
    .help = "Maximum number of tokens of all running requests together. Default: as many as fit into memory, measured at warm-up."
#define OPTION_TARGET_INTER_TOKEN_MS \
    .name = "target-inter-token-ms", .type = FLAG_U32, .def = "200", .unit = "milliseconds", \
    .help = "Target time between two tokens of running requests. It limits the prompt tokens of a step, so that the step takes this time, or twice the time of a step without prompts. 0: only --max-batch-prefill-tokens limits them."
#define OPTION_TARGET_INTER_TOKEN_FACTOR \
    .name = "target-inter-token-factor", .type = FLAG_F64, .def = "0", .unit = "times", .min = 0, .max = 1000, \
    .help = "With a value above 1, a step with prompts takes at most this many times as long as the same step without them. It applies beside --target-inter-token-ms. 2 keeps the inter-token latency of small models steady beside long prompts, which then take longer. 0: no such limit."
#define OPTION_MAX_WAITING_TOKENS \
    .name = "max-waiting-tokens", .type = FLAG_U32, .def = "20", .unit = "steps", \
    .help = "Decode steps after which waiting requests are admitted regardless of --waiting-served-ratio."
#define OPTION_PROMETHEUS_PORT \
    .name = "prometheus-port", .type = FLAG_U32, .def = "9000", .min = 1, .max = 65535, \
    .help = "Accepted for compatibility: metrics are at /metrics of --port."
#define OPTION_NNODES \
    .name = "nnodes", .type = FLAG_U32, .def = "1", .unit = "machines", .min = 1, .max = 64, \
    .help = "Number of machines the model is split over, with equally many shards on each. Start the launcher on every machine with the same options."
#define OPTION_PIPELINE_PARALLEL_SIZE \
    .name = "pipeline-parallel-size", .type = FLAG_U32, .def = "1", .unit = "stages", .min = 1, .max = 64, \
    .help = "Stages that the layers of the model are divided over, by their bytes. The shards of a stage split its layers among them (tensor parallelism): --num-shard is a multiple of this. Answers are those of one stage with as many shards."
#define OPTION_ENABLE_EXPERT_PARALLEL \
    .name = "enable-expert-parallel", .type = FLAG_BOOL, \
    .help = "Of a model with experts: the shards of a stage have some of the experts in whole each, in place of a part of every expert."
#define OPTION_MASTER_ADDR \
    .name = "master-addr", .type = FLAG_STR, .def = "localhost", \
    .help = "Name or address of machine 0, where ranks on several machines connect."
#define OPTION_RENDEZVOUS_TIMEOUT \
    .name = "rendezvous-timeout", .type = FLAG_U32, .def = "120", .unit = "seconds", .min = 1, .max = 86400, \
    .help = "Timeout of ranks on several machines, for connecting and for later messages."
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
    .help = "Fraction of the device's memory that this service may use."
#define OPTION_OTLP_ENDPOINT \
    .name = "otlp-endpoint", .type = FLAG_STR, \
    .help = "OpenTelemetry collector (OTLP over gRPC, `http://host:4317`) that receives the spans of the router and of each shard. Default: none."
#define OPTION_MODELS_FOLDER \
    .name = "models-folder", .type = FLAG_STR, \
    .help = "Folder of further models. A request selects one by its path in the folder, and it is loaded on demand."
#define OPTION_MAX_LOADED_MODELS \
    .name = "max-loaded-models", .type = FLAG_U32, .def = "1", .unit = "models", .min = 1, .max = 64, \
    .help = "Maximum number of models of --models-folder loaded at the same time; the least recently used idle one is unloaded."
#define OPTION_LMTP_LISTEN \
    .name = "lmtp-listen", .type = FLAG_STR, \
    .help = "Also serve LMTP as lines on this address: `unix:/path` or `host:port`."
#define OPTION_LMTP_MODEL_ALIAS \
    .name = "lmtp-model-alias", .type = FLAG_LIST, \
    .help = "Further model names that LMTP clients may use; `*`: any."
#define OPTION_LMTP_MAX_MESSAGE \
    .name = "lmtp-max-message", .type = FLAG_U32, .def = "4194304", .unit = "bytes", .min = 1024, .max = 1 << 30, \
    .help = "Maximum size of an LMTP message from a client."
#define OPTION_LMTP_GRACE \
    .name = "lmtp-grace", .type = FLAG_U32, .def = "30", .unit = "seconds", .max = 3600, \
    .help = "How long an LMTP stream with a `session` is kept for a client that reconnects; 0: never."
#define OPTION_ROOT_PATH \
    .name = "root-path", .type = FLAG_STR, \
    .help = "Prefix under which clients see this server behind a proxy, such as `/llm`: paths are served with and without it, and the OpenAPI document names it. A proxy that removes the prefix may send it as `X-Forwarded-Prefix` instead."
#define OPTION_CORS_ALLOW_ORIGIN \
    .name = "cors-allow-origin", .type = FLAG_LIST, \
    .help = "Origin allowed for browsers (CORS); may be repeated."
#define OPTION_API_KEY_FILE \
    .name = "api-key-file", .type = FLAG_STR, \
    .help = "File with one API key per line, in addition to --api-key. Text after a blank is the holder's name in logs. Lines that begin with # are ignored."
#define OPTION_API_KEY_ALL_ROUTES \
    .name = "api-key-all-routes", .type = FLAG_BOOL, \
    .help = "With API keys: metrics, model lists and descriptions need one, too. Only health probes stay open."
#define OPTION_TLS_CERT \
    .name = "tls-cert", .type = FLAG_STR, \
    .help = "Serve HTTPS with the certificate (followed by its chain) in this PEM file. SIGHUP reloads it."
#define OPTION_TLS_KEY \
    .name = "tls-key", .type = FLAG_STR, \
    .help = "PEM file with the private key of --tls-cert."
#define OPTION_TOKENIZER_CONFIG_PATH \
    .name = "tokenizer-config-path", .type = FLAG_STR, \
    .help = "File whose chat template replaces the model's: a tokenizer_config.json, or the template itself (`*.jinja`)."
#define OPTION_GENERATION_CONFIG \
    .name = "generation-config", .type = FLAG_STR, .def = "auto", \
    .help = "Sampling parameters of requests that set none: `auto`, the model's generation_config.json (temperature, top_p, top_k, min_p, repetition_penalty ...; max_new_tokens limits every answer); a folder with such a file; `vllm` or `none`, neutral values. Not on TGI's routes and in LMTP, which have values of their own."
#define OPTION_OVERRIDE_GENERATION_CONFIG \
    .name = "override-generation-config", .type = FLAG_STR, \
    .help = "JSON object of parameters that replace those of --generation-config, such as `{\"temperature\": 0.6, \"max_new_tokens\": 512}`."
#define OPTION_DISABLE_GRAMMAR_SUPPORT \
    .name = "disable-grammar-support", .type = FLAG_BOOL, \
    .help = "Refuse requests that constrain the answer with a grammar."
#define OPTION_JSON_WHITESPACE \
    .name = "json-whitespace", .type = FLAG_ENUM, .def = "indented", .choices = option_whitespace, \
    .help = "White space between the tokens of constrained JSON: `indented` (at most one blank, or one line break with indentation) or `compact` (none). Schemas with `strict` are always compact."
#define OPTION_TRUST_REQUEST_CHAT_TEMPLATE \
    .name = "trust-request-chat-template", .type = FLAG_BOOL, \
    .help = "Allow requests with a `chat_template`; otherwise they are refused."
#define OPTION_SPECIAL_TOKENS_IN_MESSAGES \
    .name = "special-tokens-in-messages", .type = FLAG_BOOL, \
    .help = "Texts of control tokens in messages of users and tools become these tokens, as in other servers. Otherwise they stay text, so that a message cannot open another role's."
#define OPTION_MAX_CLIENT_BATCH_SIZE \
    .name = "max-client-batch-size", .type = FLAG_U32, .def = "4", \
    .help = "Maximum number of inputs in one request; on `/v1/completions` at least 2048 prompts."
#define OPTION_LORA_ADAPTERS \
    .name = "lora-adapters", .type = FLAG_LIST, \
    .help = "LoRA adapters to serve with the model: `id`, `id@revision`, `name=path` or `name=path@revision`. Requests select one by `adapter_id` or `model`."
#define OPTION_MAX_RUNTIME_ADAPTERS \
    .name = "max-runtime-adapters", .type = FLAG_U32, .def = "0", .unit = "adapters", .min = 0, .max = 1024, \
    .help = "Maximum number of adapters loaded at run time by `POST /v1/load_lora_adapter`, in addition to `--lora-adapters`. Their memory is reserved at start. Requests whose `model` is neither the model nor an adapter are then refused."
#define OPTION_ADAPTER_MEMORY_FRACTION \
    .name = "adapter-memory-fraction", .type = FLAG_F64, .def = "0.1", .min = 0, .max = 1, \
    .help = "Fraction of the memory left by the weights that is used for adapters on the device; other adapters stay in host memory until needed."
#define OPTION_RESPONSE_STORE \
    .name = "response-store", .type = FLAG_STR, \
    .help = "Folder to store the responses of `/v1/responses`, which can then be continued (`previous_response_id`), read, deleted, and computed in the background. Only one router at a time can use it. Default: nothing is stored."
#define OPTION_RESPONSE_STORE_BYTES \
    .name = "response-store-bytes", .type = FLAG_U64, .def = "1073741824", .unit = "bytes", .min = 1024, .max = 1e15, \
    .help = "Maximum size of all stored responses; the least recently used ones are deleted."
#define OPTION_RESPONSE_STORE_COUNT \
    .name = "response-store-count", .type = FLAG_U32, .def = "100000", .unit = "responses", .min = 1, .max = 1e9, \
    .help = "Maximum number of stored responses."
#define OPTION_RESPONSE_STORE_TTL \
    .name = "response-store-ttl", .type = FLAG_U32, .def = "2592000", .unit = "seconds", .min = 1, .max = 1e9, \
    .help = "A stored response is deleted this long after its last use."
#define OPTION_PAYLOAD_LIMIT \
    .name = "payload-limit", .type = FLAG_U32, .def = "2000000", .unit = "bytes", \
    .help = "Maximum size of a request body."
#define OPTION_ACTIVATIONS \
    .name = "activations", .type = FLAG_ENUM, .def = "auto", .choices = option_activations, \
    .help = "Lowest precision of activations in matrix products: `exact` (fp32), `16` (the weights' type, if the device is faster with it) or `8` (int8 with a scale per 32 columns, for weights packed in 8 bits or fewer). `auto`: 8 with packed weights (GGUF, GPTQ, AWQ, MXFP4) on CPUs, unless --dtype is given; otherwise as implied by --dtype and --quantize. With 8, a head in 16 bits beside packed layers (not GGUF) has 8, too."
#define OPTION_MMPROJ \
    .name = "mmproj", .type = FLAG_STR, \
    .help = "Vision tower of a GGUF model: its projector file (mmproj-*.gguf), or `none`. Unset: the file beside the model whose name begins with mmproj and that fits it, if there is one."
#define OPTION_KV_CACHE_MEMORY \
    .name = "kv-cache-memory", .type = FLAG_F64, .def = "0", .unit = "fraction or bytes", .min = 0, .max = 1e18, \
    .help = "Limit of each shard's KV cache: up to 1 a fraction of the free memory, above 1 bytes (also `512Mi`, `2GiB`); 0: all free memory."
#define OPTION_SWAP_SPACE \
    .name = "swap-space", .type = FLAG_F64, .def = "0", .unit = "GiB", .min = 0, .max = 1e6, \
    .help = "Host memory of each shard for KV blocks of preempted requests; 0: these are recomputed."
#define OPTION_CONSTRAINT_MEMORY \
    .name = "constraint-memory", .type = FLAG_F64, .def = "0.5", .unit = "GiB", .min = 0.001, .max = 1e6, \
    .help = "Maximum host memory of each shard for the states and masks of constrained answers (schemas, patterns, grammars). " \
            "The least recently used ones are dropped. A constraint that exceeds it alone ends its requests with an error."
#define OPTION_KV_EVENTS_CONFIG \
    .name = "kv-events-config", .type = FLAG_STR, \
    .help = "Publish KV cache events over ZeroMQ in vLLM's format, for gateways that route by cached prefixes. The " \
            "value is vLLM's JSON: `{\"endpoint\": \"tcp://*:5557\", \"replay_endpoint\": \"tcp://*:5558\", " \
            "\"topic\": \"\"}` (also `hwm`, `buffer_steps`, `max_queue_size`)."
#define OPTION_KV_OFFLOAD_DIR \
    .name = "kv-offload-dir", .type = FLAG_STR, \
    .help = "Folder to store KV blocks of prompts, so that a repeated prompt is read instead of recomputed, also " \
            "after a restart. Several services may share it. Damaged files, and files of another model or format, " \
            "are ignored."
#define OPTION_KV_OFFLOAD_SIZE \
    .name = "kv-offload-size", .type = FLAG_F64, .def = "10", .unit = "GiB", .min = 0.001, .max = 1e9, \
    .help = "Maximum size of all files in --kv-offload-dir; the least recently used ones are deleted."
#define OPTION_KV_OFFLOAD_MEMORY \
    .name = "kv-offload-memory", .type = FLAG_F64, .def = "0", .unit = "GiB", .min = 0, .max = 1e6, \
    .help = "Host memory of each shard for KV blocks evicted from the KV cache, before --kv-offload-dir or without " \
            "it. 0: 0.25 with a folder, otherwise none."
#define OPTION_KV_TRANSFER_ADDRESS \
    .name = "kv-transfer-address", .type = FLAG_STR, \
    .help = "HOST:PORT at which other services of the same model fetch KV blocks of prompts from this one, as " \
            "requested by `kv_transfer_params` (disaggregated prefill and decode). Rank r listens on PORT + r. " \
            "Blocks are kept in --kv-offload-memory, whose default is then 1 GiB."
#define OPTION_PACKED_CACHE \
    .name = "packed-cache", .type = FLAG_STR, \
    .help = "Folder to store the weights as packed for the CPU, one file per rank: the next start maps the file " \
            "instead of reading and packing the checkpoint. Several services may share it. Damaged files, and files " \
            "of another model, version or option, are replaced."
#define OPTION_PACKED_CACHE_SIZE \
    .name = "packed-cache-size", .type = FLAG_F64, .def = "100", .unit = "GiB", .min = 0.000001, .max = 1e9, \
    .help = "Maximum size of all files in --packed-cache; the least recently used ones are deleted."
#define OPTION_REPLICA_DISCOVERY \
    .name = "replica-discovery", .type = FLAG_STR, \
    .help = "Discovers replicas, every two seconds: `dns:NAME:PORT`, all addresses of a name, such as a headless " \
            "service; `file:PATH`, a file with one address per line. A replica that disappears gets no new requests, " \
            "and is disconnected when its requests have ended."
#define OPTION_REPLICA_POLICY \
    .name = "replica-policy", .type = FLAG_ENUM, .def = "prefix", .choices = option_replica_policy, \
    .help = "How requests are assigned to replicas. `prefix`: to the replica that has cached most of the prompt, " \
            "unless its queue is too long. `round-robin`: in turn."
#define REPLICA_ADDRESS_HELP \
    "Further groups of shards that serve the same model, by the address of rank 0 (`tcp://HOST:PORT` or " \
            "HOST:PORT, started as `model-server serve MODEL --uds-path tcp://0.0.0.0:PORT`). They may start later, " \
            "and may stop and return at any time."
#define OPTION_SERVED_MODEL_NAME \
    .name = "served-model-name", .type = FLAG_STR, \
    .help = "Name of the model in answers and in /v1/models. Default: the model id."
#define OPTION_MAX_IMAGE_FETCH_SIZE \
    .name = "max-image-fetch-size", .type = FLAG_U64, .def = "1073741824", .unit = "bytes", .min = 1, \
    .help = "Maximum size of a fetched image. All images of a request together are limited to 256 MiB."
#define OPTION_ALLOW_IMAGE_URLS \
    .name = "allow-image-urls", .type = FLAG_BOOL, \
    .help = "Fetch images from http: and https: URLs in requests, from public addresses and ports 80 and 443. Otherwise only data: URLs are accepted."
#define OPTION_ALLOWED_MEDIA_DOMAINS \
    .name = "allowed-media-domains", .type = FLAG_STR, \
    .help = "Fetch images only from these hosts, separated by commas. Implies --allow-image-urls. Default: any host."
#define OPTION_MAX_IMAGES \
    .name = "max-images", .type = FLAG_U32, .def = "100", .unit = "images", .min = 1, .max = 1000, \
    .help = "Maximum number of images in a request."
#define OPTION_MAX_IMAGE_PIXELS \
    .name = "max-image-pixels", .type = FLAG_U64, .def = "200000000", .unit = "pixels", .min = 1, \
    .help = "Maximum number of pixels of all images in a request; a single image may have 50 million."
#define OPTION_WATCHDOG_SECONDS \
    .name = "watchdog-seconds", .type = FLAG_U32, .def = "120", .unit = "seconds", .max = 86400, \
    .help = "If a serving thread makes no progress for this time, the stacks of all threads and the state of scheduler or engine are logged. 0: never."
#define OPTION_STALL_TIMEOUT \
    .name = "stall-timeout", .type = FLAG_U32, .def = "30", .unit = "seconds", .max = 86400, \
    .help = "A shard whose engine makes no progress inside a step for this time (a deadlock, a hanging device) is restarted; its streams resume. The timeout is at least 10 times the longest pause so far, and 10 times longer while the process uses CPU time. 0: never."
/* clang-format on */
#endif
