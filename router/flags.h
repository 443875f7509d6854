/* flags.h - the router's options, one field for each row of flags.c, whose help says what it means.
 *
 * Lengths are in tokens unless they are named otherwise, times in seconds or, with _ms, in
 * milliseconds, sizes in bytes. Strings belong to the command line or the environment; NULL: not
 * given. Filled by flags_parse(), then immutable: all threads read it. */
#ifndef ROUTER_FLAGS_H
#define ROUTER_FLAGS_H
#include "common/flag/flag.h"
#include "common/net/cluster.h"

/* White space in answers that a JSON schema constrains. */
enum json_whitespace { WHITESPACE_INDENTED, WHITESPACE_COMPACT };

struct router_config {
    /* limits of a request, and of a batch */
    uint32_t max_concurrent_requests, max_best_of, max_stop_sequences, max_top_n_tokens;
    uint32_t max_input_tokens, max_total_tokens;
    double waiting_served_ratio; /* waiting to running requests at which a prefill interrupts */
    uint32_t target_inter_token_ms;
    double target_inter_token_factor; /* times; 0: off */
    uint32_t max_batch_prefill_tokens, max_batch_total_tokens, max_waiting_tokens, max_batch_size;
    const char *hostname;
    uint32_t port;
    /* shards: sockets or addresses, and how long they may be away; 0: not at all */
    const char *shard_uds_path, *draft_shard_uds_path;
    struct flag_list replica_address;
    const char *replica_discovery;
    uint32_t replica_policy; /* enum fleet_policy */
    struct cluster_options cluster;
    uint32_t shard_connect_timeout, shard_return_timeout;
    /* the model's files, and what replaces values of them */
    const char *tokenizer_name, *tokenizer_config_path, *revision, *mmproj, *served_model_name;
    const char *compute_type, *generation_config, *override_generation_config;
    uint32_t validation_workers, max_client_batch_size, payload_limit;
    bool json_output, disable_grammar_support, trust_remote_code, trust_request_chat_template;
    bool special_tokens_in_messages;
    uint32_t json_whitespace; /* enum json_whitespace */
    /* log, keys, and what browsers may do */
    const char *log_level, *api_key, *api_key_file, *tls_cert, *tls_key;
    bool api_key_all_routes;
    const char *root_path;
    struct flag_list cors_allow_origin;
    const char *lmtp_listen;
    struct flag_list lmtp_model_alias;
    uint32_t lmtp_max_message, lmtp_grace, watchdog_seconds;
    /* models on demand; descriptors that the launcher hands over, 0: none */
    const char *models_folder;
    uint32_t max_loaded_models, launcher_fd, startup_fd, heartbeat_fd;
    /* traces; of TGI: usage_stats is accepted without effect, ngrok is refused */
    const char *otlp_endpoint, *otlp_service_name, *usage_stats, *ngrok_authtoken, *ngrok_edge;
    bool ngrok;
    uint32_t prometheus_port;
    const char *response_store; /* a folder */
    uint64_t response_store_bytes;
    uint32_t response_store_count, response_store_ttl;
    /* images of a request together */
    uint64_t max_image_fetch_size, max_image_pixels;
    uint32_t max_images;
    bool allow_image_urls;
    const char *allowed_media_domains;
    const char *kv_events_config, *kv_transfer_address;
};

/* The table, for flags_parse(), --help, the man page and the completion. */
extern const struct flag_program router_flags;
#endif
