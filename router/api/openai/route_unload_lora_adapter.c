#include "router/api/openai/lora.h"

static int work(struct call *c, struct err *e) { return lora_change(c, false, e); }

const struct route route_unload_lora_adapter = {
    .method = "POST",
    .paths = {"/v1/unload_lora_adapter"},
    .errors = ERRORS_OPENAI,
    .summary = "Unload a LoRA adapter on all ranks (vLLM's), for those who may load one. New "
               "requests do not find it from then on; the answer comes when those that use it have "
               "ended.",
    .body = "`lora_name`",
    .takes = "LoadAdapter",
    .example = "{\"lora_name\": \"sql\"}",
    .refuses = true,
    .work = work,
};
