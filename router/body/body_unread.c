/* The members of a body that have no effect: names that no route knows, or not this one. */
#include "common/json/unread.h"
#include "router/body/body.h"
#include <string.h>

/* What a server may do without: who asks, what is kept of it and for whom, hints for caches and for
 * the choice of a replica. */
static bool is_about_the_request(const char *name)
{
    static const char *const names[] = {"metadata",
                                        "store",
                                        "service_tier",
                                        "user",
                                        "request_id",
                                        "rid",
                                        "session_id",
                                        "safety_identifier",
                                        "cache_control",
                                        "cache_prompt",
                                        "prompt_cache_key",
                                        "prompt_cache_retention",
                                        "prediction",
                                        "keep_alive",
                                        "prompt_cache_options",
                                        "routed_dp_rank",
                                        "inference_geo",
                                        "workspace_id",
                                        "user_profile_id",
                                        "data_parallel_rank",
                                        "betas",
                                        "anthropic_beta",
                                        "anthropic_version",
                                        "model",
                                        "labels",
                                        "custom_labels",
                                        "disagg_prefill_dp_rank",
                                        "id_slot",
                                        "client_metadata",
                                        "diagnostics",
                                        "sse_ping_interval"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (!strcmp(name, names[i]))
            return true;
    return false;
}

static bool is_neutral(const cJSON *v)
{
    return json_is_empty(v) || (cJSON_IsString(v) && !*v->valuestring) ||
           (cJSON_IsNumber(v) && v->valuedouble == 0);
}

void body_unread(struct body *b, struct object o)
{
    if (b->failed) /* not all was read */
        return;
    for (const cJSON *v = NULL; (v = json_unread(o.json, v));)
        if (!is_neutral(v) && !is_about_the_request(v->string))
            body_warn(b, "%s%s%.60s has no effect", o.path, *o.path ? "." : "", v->string);
}
