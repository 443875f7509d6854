#include "launcher/options/foreign.h"
#include "common/log/log.h"
#include "launcher/options/flags.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define SAME(name, here)                                                                           \
    {                                                                                              \
        (name), FOREIGN_SAME, (here), NULL, NULL                                                   \
    }
#define SAME_BUT(name, here, differs)                                                              \
    {                                                                                              \
        (name), FOREIGN_SAME, (here), NULL, (differs)                                              \
    }
#define MAPS(name, here, values, advice)                                                           \
    {                                                                                              \
        (name), FOREIGN_MAPS, (here), (values), (advice)                                           \
    }
#define SETS(name, here, value)                                                                    \
    {                                                                                              \
        (name), FOREIGN_SETS, (here), (value), NULL                                                \
    }
#define NONE(name, why)                                                                            \
    {                                                                                              \
        (name), FOREIGN_NONE, NULL, NULL, (why)                                                    \
    }
#define NONE_OF_IT(name, why)                                                                      \
    {                                                                                              \
        (name), FOREIGN_NONE_OF_IT, NULL, NULL, (why)                                              \
    }
#define NO(name, advice)                                                                           \
    {                                                                                              \
        (name), FOREIGN_REFUSED, NULL, NULL, (advice)                                              \
    }

/* clang-format off */
#define CTX "it limits one request; memory limits how many run"
#define LAYERS "use --device: a model lies on one kind of device"
#define ALL_LAYERS "99=auto 999=auto all=auto auto=auto -1=auto 0=cpu"
#define DRAWN "use --override-generation-config"
#define FOLLOWS "the format follows from the chat template"
#define ALWAYS "it is always on"
#define CANNOT "leave it out: this cannot be turned off"
#define CACHE_TYPE "use --kv-cache-dtype, one type for keys and values: q8_0 is int8, q4_0 is int4"

const struct flag_foreign foreign_options[] = {
    SAME("", "model-id"),
    /* the model and its names */
    SAME("--model", "model-id"), SAME("-m", "model-id"), SAME("--model-path", "model-id"),
    SAME("-hf", "model-id"), SAME("-hfr", "model-id"), SAME("--hf-repo", "model-id"),
    SAME("--alias", "served-model-name"), SAME("-a", "served-model-name"),
    SAME("--download-dir", "huggingface-hub-cache"),
    NO("--hf-token", "use the variable HF_TOKEN"), NO("-hft", "use the variable HF_TOKEN"),
    SAME("--models-dir", "models-folder"), SAME("--models-max", "max-loaded-models"),
    NO("--runner", "use --task"), NO("--convert", "use --task"),
    SETS("--is-embedding", "task", "embed"), SETS("--embedding", "task", "embed"), SETS("--embeddings", "task", "embed"),
    SETS("--reranking", "task", "rerank"), SETS("--rerank", "task", "rerank"),
    NO("--load-format", "leave it out: the format follows from the files"),
    NO("--tokenizer", "leave it out: the model's tokenizer is used"),
    SAME("--chat-template", "tokenizer-config-path"), SAME("--chat-template-file", "tokenizer-config-path"),
    NONE("--jinja", "chat templates are always rendered"),
    NONE("--enable-auto-tool-choice", FOLLOWS),
    NONE_OF_IT("--tool-call-parser", FOLLOWS), NONE_OF_IT("--reasoning-parser", FOLLOWS),
    NO("--reasoning-format", "leave it out: " FOLLOWS),
    /* shards and machines */
    SAME("-tp", "tensor-parallel-size"), SAME("--tp", "tensor-parallel-size"), SAME("--tp-size", "tensor-parallel-size"),
    SAME("-pp", "pipeline-parallel-size"), SAME("--pp-size", "pipeline-parallel-size"),
    SAME("--data-parallel-size", "replicas"), SAME("-dp", "replicas"), SAME("--dp", "replicas"), SAME("--dp-size", "replicas"),
    NO("--split-mode", "use --num-shard"), NO("-sm", "use --num-shard"),
    NO("--tensor-split", "use --num-shard: shards are of equal size"), NO("-ts", "use --num-shard: shards are of equal size"),
    NO("--main-gpu", "use the variable CUDA_VISIBLE_DEVICES"), NO("-mg", "use the variable CUDA_VISIBLE_DEVICES"),
    NO("--ep-size", "use --enable-expert-parallel"),
    NO("--dist-init-addr", "use --master-addr and --master-port"),
    NONE_OF_IT("--distributed-executor-backend", "every shard is a process"),
    NONE("--disable-custom-all-reduce", "how shards add follows from their devices"),
    NO("--kv-transfer-config", "use --kv-transfer-address"),
    /* lengths, batches, memory */
    SAME("--max-model-len", "max-total-tokens"), SAME("--context-length", "max-total-tokens"),
    SAME_BUT("--ctx-size", "max-total-tokens", CTX), SAME_BUT("-c", "max-total-tokens", CTX),
    SAME("--max-num-seqs", "max-batch-size"), SAME("--max-running-requests", "max-batch-size"),
    SAME("--parallel", "max-batch-size"), SAME("-np", "max-batch-size"),
    SAME("--max-num-batched-tokens", "max-batch-prefill-tokens"), SAME("--chunked-prefill-size", "max-batch-prefill-tokens"),
    SAME("--batch-size", "max-batch-prefill-tokens"), SAME("-b", "max-batch-prefill-tokens"),
    NONE_OF_IT("--ubatch-size", "--max-batch-prefill-tokens limits a step"), NONE_OF_IT("-ub", "--max-batch-prefill-tokens limits a step"),
    SAME("--gpu-memory-utilization", "cuda-memory-fraction"),
    NO("--mem-fraction-static", "use --cuda-memory-fraction, or --kv-cache-memory"),
    SAME("--kv-cache-memory-bytes", "kv-cache-memory"),
    NO("--cache-type-k", CACHE_TYPE), NO("-ctk", CACHE_TYPE), NO("--cache-type-v", CACHE_TYPE), NO("-ctv", CACHE_TYPE),
    NO("--slot-save-path", "use --kv-offload-dir"),
    SAME("-mm", "mmproj"), SETS("--no-mmproj", "mmproj", "none"), NO("--mmproj-url", "use --mmproj with a file"),
    SAME("--max-logprobs", "max-top-n-tokens"), NO("--limit-mm-per-prompt", "use --max-images"),
    NONE("--enable-prefix-caching", ALWAYS), NONE("--enable-chunked-prefill", ALWAYS),
    NONE("--cache-prompt", ALWAYS), NONE("--cont-batching", ALWAYS), NONE("-cb", ALWAYS),
    NO("--no-enable-prefix-caching", CANNOT), NO("--no-enable-chunked-prefill", CANNOT), NO("--disable-radix-cache", CANNOT),
    /* computing */
    MAPS("--gpu-layers", "device", ALL_LAYERS, LAYERS), MAPS("--n-gpu-layers", "device", ALL_LAYERS, LAYERS), MAPS("-ngl", "device", ALL_LAYERS, LAYERS),
    NO("--cpu-moe", LAYERS), NO("--n-cpu-moe", LAYERS), NO("--override-tensor", LAYERS), NO("-ot", LAYERS),
    SAME("-t", "threads"), SETS("--enforce-eager", "cuda-graphs", "0"), SETS("--disable-cuda-graph", "cuda-graphs", "0"),
    NO("--threads-batch", "use --threads"), NO("-tb", "use --threads"),
    SAME("--quantization", "quantize"), SAME("-q", "quantize"),
    NO("--flash-attn", "leave it out: " ALWAYS), NO("-fa", "leave it out: " ALWAYS),
    NONE_OF_IT("--attention-backend", "there is one for each device"),
    NONE_OF_IT("--compilation-config", "nothing is compiled at start"),
    NONE("--mlock", "weights are read or mapped as the device needs them"), NONE("--no-mmap", "weights are read or mapped as the device needs them"),
    NO("--speculative-config", "use --speculate with --draft-model-id or --draft-heads"),
    SAME("--model-draft", "draft-model-id"), SAME("-md", "draft-model-id"),
    SAME("--draft-max", "speculate"), SAME("--draft", "speculate"),
    NONE("--enable-lora", "--lora-adapters is enough"), NO("--lora-modules", "use --lora-adapters"),
    NO("--lora", "use --lora-adapters"), NO("--lora-paths", "use --lora-adapters"),
    NO("--max-loras", "use --adapter-memory-fraction"), NONE_OF_IT("--max-lora-rank", "ranks are read from the adapters"),
    NO("--temp", DRAWN), NO("--top-k", DRAWN), NO("--top-p", DRAWN), NO("--min-p", DRAWN), NO("--n-predict", DRAWN), NO("-n", DRAWN),
    NO("--seed", "leave it out: a request has a `seed`, or the answer names the one that was drawn"),
    NO("-s", "leave it out: a request has a `seed`, or the answer names the one that was drawn"),
    /* serving */
    SAME("--host", "hostname"), NO("--allowed-origins", "use --cors-allow-origin"),
    SAME("--ssl-certfile", "tls-cert"), SAME("--ssl-cert-file", "tls-cert"),
    SAME("--ssl-keyfile", "tls-key"), SAME("--ssl-key-file", "tls-key"),
    SAME("--otlp-traces-endpoint", "otlp-endpoint"),
    NONE("--metrics", "/metrics is always served"), NONE("--enable-metrics", "/metrics is always served"),
    NONE("--slots", "/slots is always served"), NONE("--props", "/props is always served"),
    SAME("--uvicorn-log-level", "log-level"), NO("--log-verbosity", "use --log-level"), NO("-lv", "use --log-level"),
    SETS("--verbose", "log-level", "debug"), SETS("-v", "log-level", "debug"),
    NONE("--disable-log-stats", "no statistics are logged: they are at /metrics"),
    NONE("--disable-log-requests", "prompts are never logged"), NONE("--no-enable-log-requests", "prompts are never logged"),
    {0},
};

/* Keys of other servers: without a warning the port would be open although a key is set. */
static const char *const keys[] = {"VLLM_API_KEY", "LLAMA_API_KEY", "SGLANG_API_KEY", NULL};
/* clang-format on */

static void log_option(const struct flag_foreign *row)
{
    if (row->kind == FOREIGN_NONE || row->kind == FOREIGN_NONE_OF_IT)
        log_msg(LOG_INFO, "%s has no effect here: %s", row->name, row->advice);
    else
        log_msg(LOG_INFO, "%s is --%s%s%s here%s%s", row->name, row->here,
                row->kind == FOREIGN_SETS ? " " : "", row->kind == FOREIGN_SETS ? row->value : "",
                row->advice ? "; " : "", row->advice ? row->advice : "");
}

/* llama-server's LLAMA_ARG_CTX_SIZE is its --ctx-size. */
static void log_variable(const char *name, size_t n)
{
    static const char prefix[] = "LLAMA_ARG_";
    const size_t skip = sizeof(prefix) - 1;
    char option[64], text[FLAG_ADVICE_MAX];
    if (n <= skip || n - skip + 3 > sizeof(option) || memcmp(name, prefix, skip) != 0)
        return;
    size_t to = 2;
    option[0] = option[1] = '-';
    for (size_t i = skip; i < n; i++)
        option[to++] = name[i] == '_' ? '-' : (char)tolower((unsigned char)name[i]);
    option[to] = 0;
    if (flag_named(&launcher_flags, option + 2, to - 2))
        snprintf(text, sizeof(text), "use %.*s", (int)(n - skip), name + skip);
    else
        flag_foreign_advice(&launcher_flags, option, text);
    log_msg(LOG_WARN, "The variable %.*s is not read%s%s", (int)n, name, *text ? ": " : "", text);
}

void foreign_log(int argc, char **argv, char *const *envp)
{
    flags_foreign(&launcher_flags, argc, argv, log_option);
    for (char *const *v = envp; *v; v++) {
        const size_t n = strcspn(*v, "=");
        for (const char *const *key = keys; *key; key++)
            if (strlen(*key) == n && !memcmp(*v, *key, n))
                log_msg(LOG_WARN, "The variable %s is not read: use API_KEY", *key);
        log_variable(*v, n);
    }
}
