/* lora.h - shared by /v1/load_lora_adapter and /v1/unload_lora_adapter: vLLM's bodies and
 * answers. */
#ifndef ROUTER_API_OPENAI_LORA_H
#define ROUTER_API_OPENAI_LORA_H
#include "router/call/call.h"

/* For route.work: the first run passes the change to the scheduler, the second one answers. */
int lora_change(struct call *c, bool load, struct err *e);
#endif
