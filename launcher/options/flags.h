/* flags.h - the launcher's command line: text-generation-inference's options, plus our own.
 *
 * One table. A row's tag says which child the option is passed to. plan.c uses the same rows, so
 * that no option can be forgotten. Numbers are 0, strings NULL and choices 0 if the user set
 * nothing and the child decides. */
#ifndef LAUNCHER_FLAGS_H
#define LAUNCHER_FLAGS_H
#include "common/flag/flag.h"
#include "common/net/cluster.h"

/* Which command lines and environments get the option: a row's tag, a set of bits. */
enum {
    TO_ROUTER = 1,
    TO_SHARD = 2,
    TO_SHARD_ENV = 4,
    TO_DOWNLOAD = 8,
    TO_DOWNLOAD_ENV = 16,
    TO_ROUTER_ENV = 32
};

enum sharded { SHARDED_AUTO, SHARDED_TRUE, SHARDED_FALSE };
enum device { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA };

/* One field for each row of flags.c, which has the unit and the meaning. Strings belong to the
 * command line or the environment; NULL: not given. */
struct config {
    /* model */
    const char *model_id, *revision, *mmproj;
    uint32_t dtype, activations, task, pooling, cutoff_layer, kv_cache_dtype, quantize, speculate;
    bool trust_remote_code;
    const char *hub_cache, *weights_cache;
    struct flag_list lora_adapters;
    uint32_t max_runtime_adapters;
    const char *response_store;
    uint64_t response_store_bytes;
    uint32_t response_store_count, response_store_ttl;
    uint32_t rope_scaling;
    double rope_factor;
    /* shards */
    const char *draft_model_id, *draft_shard_uds_path, *draft_heads;
    uint32_t draft_quantize, draft_device, draft_threads;
    double draft_kv_cache_memory;
    uint32_t sharded, num_shard, tensor_parallel_size, pipeline_parallel_size, device, threads;
    bool enable_expert_parallel;
    uint32_t replicas;
    struct flag_list replica_address;
    const char *replica_discovery;
    uint32_t replica_policy;
    const char *shard_uds_path, *master_addr;
    uint32_t master_port, nnodes, node_rank, rendezvous_timeout;
    struct cluster_options cluster;
    double cuda_memory_fraction, adapter_memory_fraction, kv_cache_memory, swap_space,
        constraint_memory;
    const char *kv_offload_dir, *kv_events_config, *kv_transfer_address, *packed_cache;
    double kv_offload_size, kv_offload_memory, packed_cache_size;
    struct flag_list cuda_graphs;
    bool disable_custom_kernels, prefill_logprobs;
    double watermark_gamma, watermark_delta;
    /* limits */
    uint32_t max_concurrent_requests, max_best_of, max_stop_sequences, max_top_n_tokens;
    uint32_t max_input_tokens, max_input_length, max_total_tokens;
    uint32_t max_batch_prefill_tokens, max_batch_total_tokens, max_waiting_tokens, max_batch_size;
    uint32_t max_client_batch_size, validation_workers;
    uint32_t payload_limit;
    uint64_t max_image_fetch_size, max_image_pixels;
    uint32_t max_images;
    bool allow_image_urls;
    const char *allowed_media_domains;
    double waiting_served_ratio;
    uint32_t target_inter_token_ms;
    double target_inter_token_factor;
    /* HTTP */
    const char *hostname, *served_model_name;
    uint32_t port, prometheus_port;
    struct flag_list cors_allow_origin;
    const char *lmtp_listen;
    struct flag_list lmtp_model_alias;
    uint32_t lmtp_max_message, lmtp_grace;
    const char *models_folder;
    uint32_t max_loaded_models;
    const char *api_key, *api_key_file, *tokenizer_config_path, *generation_config, *root_path,
        *override_generation_config;
    bool api_key_all_routes, disable_grammar_support, trust_request_chat_template;
    bool special_tokens_in_messages;
    uint32_t json_whitespace;
    bool ngrok;
    const char *ngrok_authtoken, *ngrok_edge;
    uint32_t usage_stats;
    /* running */
    bool json_output, env, dry_run;
    const char *tls_cert, *tls_key, *log_level, *otlp_endpoint, *otlp_service_name;
    uint32_t graceful_termination_timeout, watchdog_seconds, startup_timeout, max_shard_restarts;
    uint32_t heartbeat_timeout, stall_timeout;
};

extern const struct flag_program launcher_flags;

/* All checks that need neither model nor machine, in TGI's order and with TGI's messages. Sets
 * num_shard, max_input_tokens and rope_* to the values for the children. */
int flags_check(struct config *c, int devices, struct err *e);

/* The bind address for --hostname. A name that is no IP address listens on all interfaces, as in
 * TGI, except `localhost`: both of its addresses. Returns a static string or the argument. */
const char *flags_bind_address(const char *hostname);
#endif
