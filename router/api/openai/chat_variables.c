/* What a chat request sets in the template: variables of its own, documents, and reasoning under
 * the names that servers and clients have for it. */
#include "common/json/json.h"
#include "router/api/openai/chat_completion.h"
#include "router/chat/convert.h"
#include <string.h>

/* What a request says of reasoning. */
struct reasoning {
    bool on, off;
    const char *effort; /* NULL: not given */
};

static void free_tree(void *tree) { cJSON_Delete(tree); }

/* Channel models know three levels only, and so do other templates. */
const char *chat_nearest_effort(const char *effort)
{
    static const char *const to[][2] = {
        {"none", "low"}, {"minimal", "low"}, {"xhigh", "high"}, {"max", "high"}};
    for (size_t i = 0; i < sizeof(to) / sizeof(to[0]); i++)
        if (!strcmp(effort, to[i][0]))
            return to[i][1];
    return effort;
}

static void read_switch(struct body *b, struct object o, const char *key, struct reasoning *w)
{
    if (!json_get(o.json, key))
        return;
    bool on = body_opt_bool(b, o, key, true);
    w->on |= on;
    w->off |= !on;
}

/* DeepSeek's, GLM's and Kimi's APIs. Other types leave the choice to the model. */
static void read_thinking(struct body *b, struct object root, struct reasoning *w)
{
    const cJSON *v = body_get(b, root, "thinking", false);
    const char *type = json_str(v, "type", "");
    const bool automatic = !strcmp(type, "auto") || !strcmp(type, "adaptive");
    const bool on = !strcmp(type, "enabled"), off = !strcmp(type, "disabled");
    w->on |= on;
    w->off |= off;
    if (v && !on && !off && !automatic)
        body_fail(b, root, "thinking",
                  "`thinking` is an object with `type`: `enabled`, `disabled` or `auto`");
}

/* `reasoning_effort` (OpenAI), `reasoning` (OpenRouter), `thinking`, and `enable_thinking` (Qwen's
 * API). */
static struct reasoning read_reasoning(struct body *b, struct object root, struct chat_request *r)
{
    struct reasoning w = {.effort = body_str(b, root, "reasoning_effort", false)};
    bool given;
    if (json_get(root.json, "reasoning")) {
        struct object o = body_object(b, root, "reasoning", &given);
        const char *effort = body_str(b, o, "effort", false);
        w.effort = w.effort ? w.effort : effort;
        read_switch(b, o, "enabled", &w);
        r->hide_reasoning |= body_opt_bool(b, o, "exclude", false);
        if (body_u32(b, o, "max_tokens").set)
            body_warn(b, "reasoning: max_tokens has no effect");
    }
    read_thinking(b, root, &w);
    read_switch(b, root, "enable_thinking", &w);
    if (w.on && w.off)
        body_fail(b, root, "thinking", "reasoning is turned on and off");
    if (w.effort && !strcmp(w.effort, "none") && !w.on)
        w.off = true;
    if (w.on && !r->style.reasoning) /* agents send it to every model */
        body_warn(b, "thinking: this model has none");
    return w;
}

static void add_documents(struct body *b, struct object root, struct chat_request *r, cJSON *all)
{
    const cJSON *list = body_get(b, root, "documents", false);
    if (list && !cJSON_IsArray(list))
        body_mistyped(b, root, "documents", list, "a sequence");
    for (const cJSON *k = json_first(list); k; k = k->next)
        if (!cJSON_IsObject(k))
            body_mistyped(b, root, "documents", k, "a map");
    if (!json_first(list) || b->failed)
        return;
    if (!r->style.documents)
        body_fail(b, root, "documents",
                  "this model's template has no place for `documents`: put their text into a "
                  "message");
    else if (!cJSON_HasObjectItem(all, "documents"))
        cJSON_AddItemToObject(all, "documents", cJSON_Duplicate(list, true));
}

cJSON *chat_variables(struct body *b, struct object root, struct chat_request *r)
{
    const cJSON *own = body_get(b, root, "chat_template_kwargs", false);
    const struct reasoning w = read_reasoning(b, root, r);
    if (own && !cJSON_IsObject(own))
        body_mistyped(b, root, "chat_template_kwargs", own, "a map");
    cJSON *all = own ? cJSON_Duplicate(own, true) : cJSON_CreateObject();
    if (!all || arena_defer(b->arena, free_tree, all) != 0) {
        cJSON_Delete(all);
        body_nomem(b, root, "chat_template_kwargs");
        return NULL;
    }
    if (b->failed)
        return NULL;
    const char *effort = w.effort ? w.effort : w.off && r->style.channels ? "none" : NULL;
    r->effort = effort && !cJSON_HasObjectItem(all, "reasoning_effort");
    if (r->effort)
        cJSON_AddStringToObject(all, "reasoning_effort",
                                r->style.channels ? chat_nearest_effort(effort) : effort);
    if (w.on || w.off)
        convert_switch(all, w.on);
    add_documents(b, root, r, all);
    return all;
}
