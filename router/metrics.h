/* metrics.h - the router's metrics, one row each; names and buckets are TGI's. */
#ifndef ROUTER_METRICS_H
#define ROUTER_METRICS_H
#include "common/metrics.h"

/* Kinds of metrics, histograms with their bounds (metric_row). */
#define METRIC_BOUNDS(first_, by, number)                                                          \
    .type = METRIC_HISTOGRAM, .first = first_, .factor = by, .n_bounds = number
#define METRIC_OF_COUNTER     .type = METRIC_COUNTER
#define METRIC_OF_GAUGE       .type = METRIC_GAUGE
#define METRIC_OF_SECONDS     METRIC_BOUNDS(0.00015, 1.5, 35)
#define METRIC_OF_TOKENS      METRIC_BOUNDS(1, 1.5, 30)
#define METRIC_OF_STEP_TOKENS METRIC_BOUNDS(1, 2, 15)
#define METRIC_OF_REQUESTS    METRIC_BOUNDS(1, 2, 11)
#define METRIC_OF_ACCEPTED    METRIC_BOUNDS(1, 0, 16)

/* id, kind, name, label, help */
#define ROUTER_METRICS(X)                                                                          \
    X(M_REQUEST_COUNT, COUNTER, "tgi_request_count", NULL, "Requests received.")                   \
    X(M_REQUEST_SUCCESS, COUNTER, "tgi_request_success", NULL, "Generations that ended normally.") \
    X(M_REQUEST_FAILURE, COUNTER, "tgi_request_failure", "err", "Requests that failed, by cause.") \
    X(M_FINISHED, COUNTER, "tgi_request_finished", "finished_reason",                              \
      "Generations and embedded texts by their end: stop, length, abort (the client left), error " \
      "(of the server).")                                                                          \
    X(M_REQUEST_DURATION, SECONDS, "tgi_request_duration", NULL,                                   \
      "Seconds from arrival to the last token.")                                                   \
    X(M_VALIDATION_DURATION, SECONDS, "tgi_request_validation_duration", NULL,                     \
      "Seconds spent in validation.")                                                              \
    X(M_QUEUE_DURATION, SECONDS, "tgi_request_queue_duration", NULL,                               \
      "Seconds from validation to first scheduling.")                                              \
    X(M_INFERENCE_DURATION, SECONDS, "tgi_request_inference_duration", NULL,                       \
      "Seconds from first scheduling to the end.")                                                 \
    X(M_FIRST_TOKEN_DURATION, SECONDS, "tgi_request_first_token_duration", NULL,                   \
      "Seconds from arrival to the first token.")                                                  \
    X(M_PREFILL_DURATION, SECONDS, "tgi_request_prefill_duration", NULL,                           \
      "Seconds from first scheduling to the first token.")                                         \
    X(M_DECODE_DURATION, SECONDS, "tgi_request_decode_duration", NULL,                             \
      "Seconds from the first token to the last.")                                                 \
    X(M_INTER_TOKEN, SECONDS, "tgi_request_inter_token_duration", NULL,                            \
      "Seconds between two steps that gave a request tokens.")                                     \
    X(M_PROMPT_TOKENS, COUNTER, "tgi_prompt_tokens", NULL,                                         \
      "Prompt tokens of requests, counted with their first token.")                                \
    X(M_PROMPT_SOURCES, COUNTER, "tgi_prompt_tokens_by_source", "source",                          \
      "The same, by where their KV came from: local_compute, local_cache_hit (the prefix cache), " \
      "external_kv_transfer (a lower tier, or another service).")                                  \
    X(M_NEW_TOKENS, COUNTER, "tgi_generated_tokens", NULL,                                         \
      "Tokens generated, counted with each step.")                                                 \
    X(M_TOKEN_DURATION, SECONDS, "tgi_request_mean_time_per_token_duration", NULL,                 \
      "Mean seconds per token of a request.")                                                      \
    X(M_GENERATED_TOKENS, TOKENS, "tgi_request_generated_tokens", NULL,                            \
      "Tokens generated per request.")                                                             \
    X(M_INPUT_LENGTH, TOKENS, "tgi_request_input_length", NULL, "Prompt tokens per request.")      \
    X(M_MAX_NEW_TOKENS, TOKENS, "tgi_request_max_new_tokens", NULL, "max_new_tokens per request.") \
    X(M_SKIPPED_TOKENS, ACCEPTED, "tgi_request_skipped_tokens", NULL,                              \
      "Tokens gained by speculation per step.")                                                    \
    X(M_SPEC_DRAFTS, COUNTER, "tgi_speculation_drafts", NULL,                                      \
      "Steps of a request that verified drafts, from whatever source.")                            \
    X(M_SPEC_TOKENS, COUNTER, "tgi_speculation_draft_tokens", NULL,                                \
      "Draft tokens that were verified.")                                                          \
    X(M_SPEC_ACCEPTED, COUNTER, "tgi_speculation_accepted_tokens", NULL,                           \
      "Draft tokens that were accepted.")                                                          \
    X(M_SPEC_POSITIONS, COUNTER, "tgi_speculation_accepted_positions", "position",                 \
      "The same, by the token's position in its draft, from 0 on.")                                \
    X(M_QUEUE_SIZE, GAUGE, "tgi_queue_size", NULL, "Requests waiting.")                            \
    X(M_QUEUE_REASONS, GAUGE, "tgi_queue_reasons", "reason",                                       \
      "The same, by what they wait for: capacity, deferred (KV that is loaded, or that a request " \
      "with the same prompt computes).")                                                           \
    X(M_BATCH_NEXT_SIZE, REQUESTS, "tgi_batch_next_size", NULL,                                    \
      "Requests that joined per new batch.")                                                       \
    X(M_BATCH_CURRENT_SIZE, GAUGE, "tgi_batch_current_size", NULL,                                 \
      "Requests running, those whose prompts are being computed among them.")                      \
    X(M_BATCH_CURRENT_MAX_TOKENS, GAUGE, "tgi_batch_current_max_tokens", NULL,                     \
      "Tokens the running batch may reach.")                                                       \
    X(M_BATCH_MAX_TOTAL_TOKENS, GAUGE, "tgi_batch_max_total_tokens", NULL,                         \
      "Tokens the KV cache holds.")                                                                \
    X(M_BATCH_CONCAT, COUNTER, "tgi_batch_concat", "reason", "Batches that joined a running one.") \
    X(M_BATCH_CONCAT_DURATION, SECONDS, "tgi_batch_concat_duration", "method",                     \
      "Seconds to concatenate.")                                                                   \
    X(M_BATCH_INFERENCE_COUNT, COUNTER, "tgi_batch_inference_count", "method", "Model calls.")     \
    X(M_BATCH_INFERENCE_SUCCESS, COUNTER, "tgi_batch_inference_success", "method",                 \
      "Model calls that succeeded.")                                                               \
    X(M_BATCH_INFERENCE_FAILURE, COUNTER, "tgi_batch_inference_failure", "method",                 \
      "Model calls that failed.")                                                                  \
    X(M_BATCH_INFERENCE_DURATION, SECONDS, "tgi_batch_inference_duration", "method",               \
      "Seconds per model call.")                                                                   \
    X(M_BATCH_FORWARD_DURATION, SECONDS, "tgi_batch_forward_duration", "method",                   \
      "Seconds in the forward pass.")                                                              \
    X(M_BATCH_DECODE_DURATION, SECONDS, "tgi_batch_decode_duration", "method",                     \
      "Seconds from logits to text.")                                                              \
    X(M_BATCH_FILTER_DURATION, SECONDS, "tgi_batch_filter_duration", "method",                     \
      "Seconds to filter a batch.")                                                                \
    X(M_KV_BLOCKS, GAUGE, "kv_blocks", "state", "KV blocks by state: used, cached, free.")         \
    X(M_WINDOW_BLOCKS, GAUGE, "tgi_kv_window_blocks", "state",                                     \
      "Blocks of the sliding-window cache by state: used, cached, free.")                          \
    X(M_PREEMPTIONS, COUNTER, "tgi_preemption_count", "method",                                    \
      "Requests that were preempted: `swap` or `recompute`.")                                      \
    X(M_SWAPPED_BLOCKS, COUNTER, "tgi_swapped_blocks", "direction",                                \
      "KV blocks moved to the swap region and back.")                                              \
    X(M_STATE_CELLS, GAUGE, "tgi_state_cells", "state",                                            \
      "Cells of recurrent state: used by requests, snapshot (kept for prefix hits), free.")        \
    X(M_STATE_SAVES, COUNTER, "tgi_state_snapshots", NULL, "Snapshots of recurrent state taken.")  \
    X(M_STATE_HITS, COUNTER, "tgi_state_snapshot_hits", NULL,                                      \
      "Requests that resumed from a snapshot of recurrent state.")                                 \
    X(M_CONSTRAINT_BYTES, GAUGE, "tgi_constraint_bytes", NULL,                                     \
      "Host memory of one shard for constraints (--constraint-memory).")                           \
    X(M_CONSTRAINT_EVICTIONS, COUNTER, "tgi_constraint_evictions", "what",                         \
      "Constraints over that memory: unused (dropped), masks (dropped of one in use), closed "     \
      "(the largest one, whose requests end).")                                                    \
    X(M_SWAP_USED, GAUGE, "tgi_swap_blocks_used", NULL, "KV blocks in the swap region.")           \
    X(M_OFFLOAD_BYTES, GAUGE, "tgi_kv_offload_bytes", "tier",                                      \
      "Bytes of offloaded KV blocks of one shard: memory, disk (all files of the folder).")        \
    X(M_OFFLOAD_HITS, COUNTER, "tgi_kv_offload_hits", "tier",                                      \
      "KV blocks found in a lower cache tier: memory, disk.")                                      \
    X(M_OFFLOAD_MISSES, COUNTER, "tgi_kv_offload_misses", NULL,                                    \
      "KV blocks not found in any lower cache tier.")                                              \
    X(M_OFFLOAD_LOADED, COUNTER, "tgi_kv_offload_loaded", NULL,                                    \
      "KV blocks loaded into the cache from a lower tier.")                                        \
    X(M_OFFLOAD_STORED, COUNTER, "tgi_kv_offload_stored", NULL,                                    \
      "KV blocks stored to a lower cache tier.")                                                   \
    X(M_OFFLOAD_WRITTEN, COUNTER, "tgi_kv_offload_files", NULL,                                    \
      "Files that one shard wrote to --kv-offload-dir.")                                           \
    X(M_OFFLOAD_EVICTIONS, COUNTER, "tgi_kv_offload_evictions", "tier",                            \
      "Offloaded KV blocks evicted from a tier: memory, disk.")                                    \
    X(M_OFFLOAD_REFUSED, COUNTER, "tgi_kv_offload_refused", "reason",                              \
      "Files ignored as damaged or foreign (another model or format), and failed writes.")         \
    X(M_OFFLOAD_LOST, COUNTER, "tgi_kv_offload_lost", NULL,                                        \
      "KV blocks evicted before they were stored to a lower tier.")                                \
    X(M_OFFLOAD_LATE, COUNTER, "tgi_kv_offload_late", NULL,                                        \
      "Reads from a lower tier abandoned because they took longer than computing the prompt.")     \
    X(M_BATCH_PROMPT_TOKENS, STEP_TOKENS, "tgi_batch_prompt_tokens", NULL,                         \
      "Prompt tokens computed per model call.")                                                    \
    X(M_BATCH_TOKENS, STEP_TOKENS, "tgi_batch_tokens", NULL,                                       \
      "Prompt tokens computed and tokens generated, per model call.")                              \
    X(M_BATCH_PROMPT_BUDGET, GAUGE, "tgi_batch_prompt_budget", NULL,                               \
      "Prompt tokens that the next model call may compute.")                                       \
    X(M_QUEUE_KEYS, GAUGE, "tgi_queue_keys", NULL, "Keys with requests waiting or running.")       \
    X(M_KV_COPIES, COUNTER, "tgi_kv_copies", NULL,                                                 \
      "KV blocks copied because a prompt diverges in the middle of one.")                          \
    X(M_SHARED_PROMPTS, COUNTER, "tgi_shared_prompts", NULL,                                       \
      "Requests that shared the prefill of another one with the same prompt.")                     \
    X(M_LOG_DROPPED, COUNTER, "log_lines_dropped_total", NULL,                                     \
      "Lines of the router's log dropped because the log was not read.")                           \
    X(M_TRACE_SPANS, COUNTER, "otlp_spans", "fate",                                                \
      "Spans by outcome: sent, dropped (the queue was full), lost (rejected by the collector).")   \
    X(M_SHARD_RETURNS, COUNTER, "tgi_shard_returns", NULL,                                         \
      "Times that lost shards returned and running requests resumed.")                             \
    X(M_HANDOVERS, COUNTER, "tgi_replica_handovers", NULL,                                         \
      "Requests of lost replicas that resumed at another one.")                                    \
    X(M_TRANSFER_EXPORTED, COUNTER, "tgi_kv_transfer_exported", NULL,                              \
      "KV blocks kept for another service.")                                                       \
    X(M_TRANSFER_BLOCKS, COUNTER, "tgi_kv_transfer_blocks", NULL,                                  \
      "KV blocks read from another service by all shards.")                                        \
    X(M_TRANSFER_BYTES, COUNTER, "tgi_kv_transfer_bytes", NULL,                                    \
      "Bytes read from another service, over all shards.")                                         \
    X(M_TRANSFER_SECONDS, COUNTER, "tgi_kv_transfer_seconds", NULL,                                \
      "Seconds of these reads, of the slowest shard.")                                             \
    X(M_TRANSFER_READS, COUNTER, "tgi_kv_transfer_reads", "outcome",                               \
      "Reads from another service: found, missing (a block is not available there), unreachable, " \
      "refused (another model or format, or not a member of the cluster), damaged, late, full "    \
      "(out of memory here for now: reading continues). Except for found and full, missing "       \
      "blocks are computed.")                                                                      \
    X(M_DRAFT_MODEL, GAUGE, "tgi_draft_model", NULL, "1: a draft model is connected.")             \
    X(M_DRAFT_TOKENS, COUNTER, "tgi_draft_tokens", NULL, "Tokens proposed by the draft model.")    \
    X(M_DRAFT_WAITS, COUNTER, "tgi_draft_waits", "outcome",                                        \
      "Steps that waited for drafts: met, missed (the deadline passed), lost (the draft model "    \
      "was lost).")                                                                                \
    X(M_STARTUP_PHASE, GAUGE, "startup_phase_seconds", "phase",                                    \
      "Seconds of the last start by phase: of the slowest shard, and `router_` of the router; "    \
      "`ready`: from the router's start until requests were served.")                              \
    X(M_PREFIX_HIT_TOKENS, COUNTER, "prefix_hit_tokens", NULL,                                     \
      "Prompt tokens served from the prefix cache.")                                               \
    X(M_PREFIX_QUERY_TOKENS, COUNTER, "prefix_query_tokens", NULL,                                 \
      "Prompt tokens looked up in the prefix cache.")                                              \
    X(M_KV_USAGE, GAUGE, "kv_usage", NULL, "KV blocks in use, as a fraction of all: 0 to 1.")

/* id, and values of its label whose series exist before their first event. */
#define ROUTER_METRIC_SERIES(X)                                                                    \
    X(M_FINISHED, "stop", "length", "abort", "error")                                              \
    X(M_PROMPT_SOURCES, "local_compute", "local_cache_hit", "external_kv_transfer")                \
    X(M_SPEC_POSITIONS, "0", "1", "2")                                                             \
    X(M_QUEUE_REASONS, "capacity", "deferred")                                                     \
    X(M_REQUEST_FAILURE, "validation", "overloaded", "generation", "incomplete", "template",       \
      "unhealthy", "dropped")                                                                      \
    X(M_BATCH_CONCAT, "chunking", "backpressure", "wait_exceeded")                                 \
    X(M_BATCH_INFERENCE_COUNT, "prefill", "decode")                                                \
    X(M_BATCH_INFERENCE_SUCCESS, "prefill", "decode")                                              \
    X(M_BATCH_INFERENCE_FAILURE, "prefill", "decode")                                              \
    X(M_PREEMPTIONS, "swap", "recompute")                                                          \
    X(M_SWAPPED_BLOCKS, "out", "in")                                                               \
    X(M_CONSTRAINT_EVICTIONS, "unused", "masks", "closed")                                         \
    X(M_OFFLOAD_HITS, "memory", "disk")                                                            \
    X(M_OFFLOAD_EVICTIONS, "memory", "disk")                                                       \
    X(M_OFFLOAD_REFUSED, "damaged", "foreign", "write")                                            \
    X(M_TRANSFER_READS, "found", "missing", "unreachable", "refused", "damaged", "late", "full")   \
    X(M_DRAFT_WAITS, "met", "missed", "lost")                                                      \
    X(M_TRACE_SPANS, "sent", "dropped", "lost")

/* The same values under vLLM's names, for routers and autoscalers that only read those. A name is
 * listed only if type and meaning agree; `gpu_*` are names of older versions. */
#define ROUTER_METRIC_ALIASES(X)                                                                   \
    X("vllm:num_requests_waiting", M_QUEUE_SIZE, ALL)                                              \
    X("vllm:num_requests_waiting_by_reason", M_QUEUE_REASONS, ALL)                                 \
    X("vllm:num_requests_running", M_BATCH_CURRENT_SIZE, ALL)                                      \
    X("vllm:kv_cache_usage_perc", M_KV_USAGE, ALL)                                                 \
    X("vllm:gpu_cache_usage_perc", M_KV_USAGE, ALL)                                                \
    X("vllm:prefix_cache_queries_total", M_PREFIX_QUERY_TOKENS, ALL)                               \
    X("vllm:prefix_cache_hits_total", M_PREFIX_HIT_TOKENS, ALL)                                    \
    X("vllm:gpu_prefix_cache_queries_total", M_PREFIX_QUERY_TOKENS, ALL)                           \
    X("vllm:gpu_prefix_cache_hits_total", M_PREFIX_HIT_TOKENS, ALL)                                \
    X("vllm:num_preemptions_total", M_PREEMPTIONS, ALL)                                            \
    X("vllm:prompt_tokens_total", M_PROMPT_TOKENS, ALL)                                            \
    X("vllm:prompt_tokens_by_source_total", M_PROMPT_SOURCES, ALL)                                 \
    X("vllm:prompt_tokens_cached_total", M_PREFIX_HIT_TOKENS, ALL)                                 \
    X("vllm:generation_tokens_total", M_NEW_TOKENS, ALL)                                           \
    X("vllm:iteration_tokens_total", M_BATCH_TOKENS, ALL)                                          \
    X("vllm:request_success_total", M_FINISHED, ALL)                                               \
    X("vllm:request_prompt_tokens", M_INPUT_LENGTH, ALL)                                           \
    X("vllm:request_generation_tokens", M_GENERATED_TOKENS, ALL)                                   \
    X("vllm:request_params_max_tokens", M_MAX_NEW_TOKENS, ALL)                                     \
    X("vllm:time_to_first_token_seconds", M_FIRST_TOKEN_DURATION, ALL)                             \
    X("vllm:inter_token_latency_seconds", M_INTER_TOKEN, ALL)                                      \
    X("vllm:request_time_per_output_token_seconds", M_TOKEN_DURATION, ALL)                         \
    X("vllm:e2e_request_latency_seconds", M_REQUEST_DURATION, ALL)                                 \
    X("vllm:request_queue_time_seconds", M_QUEUE_DURATION, ALL)                                    \
    X("vllm:request_inference_time_seconds", M_INFERENCE_DURATION, ALL)                            \
    X("vllm:request_prefill_time_seconds", M_PREFILL_DURATION, ALL)                                \
    X("vllm:request_decode_time_seconds", M_DECODE_DURATION, ALL)                                  \
    X("vllm:spec_decode_num_drafts_total", M_SPEC_DRAFTS, ALL)                                     \
    X("vllm:spec_decode_num_draft_tokens_total", M_SPEC_TOKENS, ALL)                               \
    X("vllm:spec_decode_num_accepted_tokens_total", M_SPEC_ACCEPTED, ALL)                          \
    X("vllm:spec_decode_num_accepted_tokens_per_pos_total", M_SPEC_POSITIONS, ALL)

/* And under llama-server's, which have no labels of their own. */
#define ROUTER_METRIC_LLAMA(X)                                                                     \
    X("llamacpp:prompt_tokens_total", M_BATCH_PROMPT_TOKENS, SUM)                                  \
    X("llamacpp:prompt_tokens_cached_total", M_PREFIX_HIT_TOKENS, ALL)                             \
    X("llamacpp:tokens_predicted_total", M_NEW_TOKENS, ALL)                                        \
    X("llamacpp:n_decode_total", M_BATCH_INFERENCE_COUNT, ALL)                                     \
    X("llamacpp:requests_processing", M_BATCH_CURRENT_SIZE, ALL)                                   \
    X("llamacpp:requests_deferred", M_QUEUE_SIZE, ALL)                                             \
    X("llamacpp:kv_cache_usage_ratio", M_KV_USAGE, ALL)

enum router_metric {
#define X(id, ...) id,
    ROUTER_METRICS(X)
#undef X
        N_ROUTER_METRICS
};
extern const struct metric_row router_metrics[N_ROUTER_METRICS];

/* Creates the table with the series of ROUTER_METRIC_SERIES. NULL: out of memory. */
struct metrics *router_metrics_new(void);
/* Prints the aliases: vLLM's with the model's name in every series, and llama-server's. */
void router_metrics_print_aliases(const struct metrics *m, const char *model, struct buf *out);
#endif
