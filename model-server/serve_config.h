/* serve_config.h - options of `model-server serve`, as its flags set them (cmd_serve.c). */
#ifndef MODEL_SERVER_SERVE_CONFIG_H
#define MODEL_SERVER_SERVE_CONFIG_H
#include "common/flag/flag.h"
#include "common/net/cluster.h"
#include "model-server/backend/backend.h"
#include "model-server/kv_below.h"

enum { BLOCK_SIZE = 16 }; /* tokens of a KV block */

struct serve_config {
    const char *model_id, *revision, *mmproj, *uds_path, *device, *quantize, *shard_group,
        *rope_scaling;
    const char *otlp_endpoint, *otlp_service_name, *master_addr, *draft_heads, *packed_cache;
    struct kv_below_options below;
    struct cluster_options cluster;
    struct flag_list lora_adapters;
    uint32_t dtype, activations, kv_dtype, threads, logger_level, max_input_tokens,
        max_total_tokens, speculate;
    uint32_t startup_fd, watchdog_s, stall_s, heartbeat_fd;
    uint32_t rank, world, nnodes, master_port, rendezvous_s, max_prefill_tokens, max_batch_size;
    uint32_t runtime_adapters, task, pooling, cutoff_layer, stages;
    enum quant quant; /* what `quantize` says */
    double rope_factor, row_cost, memory_fraction, adapter_fraction, kv_memory, swap_gib,
        constraint_gib, packed_size, watermark_gamma, watermark_delta;
    bool expert_parallel, sharded, json_output, trust_remote_code, prefill_logprobs, dry_run;
    bool skip_missing_adapters;
};
#endif
