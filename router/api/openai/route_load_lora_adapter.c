#include "router/api/openai/lora.h"

static int work(struct call *c, struct err *e) { return lora_change(c, true, e); }

const struct route route_load_lora_adapter = {
    .method = "POST",
    .paths = {"/v1/load_lora_adapter"},
    .errors = ERRORS_OPENAI,
    .summary = "Load a LoRA adapter on all ranks while the server runs (vLLM's), where the server "
               "was started with `--max-runtime-adapters`. With `--api-key` it needs one; without "
               "keys it is served to 127.0.0.1 and ::1 alone, and not through a proxy.",
    .body = "`lora_name`: what requests call it; `lora_path`: a folder of the shards' machines, or "
            "the name of a repository in their cache",
    .takes = "LoadAdapter",
    .example = "{\"lora_name\": \"sql\", \"lora_path\": \"/data/adapters/sql\"}",
    .refuses = true,
    .work = work,
};
