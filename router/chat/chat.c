#include "router/chat/chat.h"
#include "common/hub/names.h"
#include "common/json/exact.h"
#include "common/model/model_file.h"
#include "common/template/chat.h"
#include "common/text.h"
#include "router/chat/message.h"
#include "router/chat/pictures.h"
#include "router/chat/roles.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_MAX = 32 << 20 };

struct chat_entry { /* a template; NULL: none */
    struct template *t;
    struct chat_style style;
    bool calls;     /* it renders earlier calls */
    bool parts_all; /* it renders content only as lists of parts */
    bool developer; /* it has this role */
    bool raises;    /* it refuses conversations */
    bool thoughts;  /* it renders reasoning as parts of the content */
    bool pairs;     /* it has the roles of a pair for a reranker */
};
struct chat {
    struct chat_entry plain, with_tools; /* with_tools: the template named "tool_use" */
    cJSON *bos, *eos;                    /* string or null */
    char *source;                        /* of `plain`; NULL: none */
    char *info;                          /* see chat_tokenizer_info() */
    struct chat_marks marks;             /* ours; see chat_see(). NULL: the model takes text only */
    const struct tokenizer *tokenizer;   /* NULL: nothing is guarded */
    struct guard guard;
};

static void learn_parts(const struct chat *c, struct chat_entry *t);

/* ---------------------------------------------------------------- load */

/* Is the word there as a string of the template? */
static bool names_role(const char *src, const char *role)
{
    char quoted[2][32];
    snprintf(quoted[0], sizeof(quoted[0]), "'%s'", role);
    snprintf(quoted[1], sizeof(quoted[1]), "\"%s\"", role);
    return strstr(src, quoted[0]) || strstr(src, quoted[1]);
}

static int compile(struct chat *c, struct chat_entry *slot, const char *src, struct err *e)
{
    template_free(slot->t);
    slot->t = template_compile(src, strlen(src), e);
    if (!slot->t)
        return -1;
    slot->style.tools = template_mentions(slot->t, "tools");
    slot->style.documents = template_mentions(slot->t, "documents");
    slot->style.calls = slot->style.tools ? call_format_find(src) : &call_format_bare;
    slot->style.channels = strstr(src, "<|channel|>") && strstr(src, "<|message|>");
    slot->style.reasoning = thought_marks_find(src, &slot->style.thoughts) || slot->style.channels;
    slot->calls = strstr(src, "tool_calls") != NULL;
    slot->developer = names_role(src, "developer");
    slot->thoughts = strstr(src, "== 'thinking'") != NULL;
    slot->pairs = names_role(src, "query") && names_role(src, "document");
    slot->raises = template_mentions(slot->t, "raise_exception");
    if (c->tokenizer && guard_learn(&c->guard, c->tokenizer, src, e) != 0)
        return -1;
    if (slot == &c->with_tools)
        return 0;
    free(c->source);
    return (c->source = strdup(src)) ? 0 : err_nomem(e);
}

/* Reads chat_template: a string, or a list of {"name", "template"}. 1: none. */
static int take_template(struct chat *c, const cJSON *value, struct err *e)
{
    if (cJSON_IsString(value))
        return compile(c, &c->plain, value->valuestring, e);
    if (!cJSON_IsArray(value) || !value->child)
        return 1;
    for (const cJSON *v = value->child; v; v = v->next) {
        const char *name = json_str(v, "name", ""), *src = json_str(v, "template", NULL);
        if (!src)
            continue;
        if (!strcmp(name, "default") && compile(c, &c->plain, src, e) != 0)
            return -1;
        if (!strcmp(name, "tool_use") && compile(c, &c->with_tools, src, e) != 0)
            return -1;
    }
    return c->plain.t ? 0 : 1;
}

static int from_json(struct chat *c, const char *path, bool tokens, struct err *e)
{
    cJSON *j = model_file_json(path, CONFIG_MAX, e);
    static const char *const names[] = {"bos_token", "eos_token"};
    cJSON **slots[] = {&c->bos, &c->eos};
    if (!j)
        return -1;
    int rc = take_template(c, json_get(j, "chat_template"), e);
    for (int i = 0; tokens && i < 2; i++) {
        const cJSON *v = json_get(j, names[i]);
        const char *s = cJSON_IsString(v) ? v->valuestring : json_str(v, "content", NULL);
        if (s) {
            cJSON_Delete(*slots[i]);
            *slots[i] = cJSON_CreateString(s);
        }
    }
    cJSON_Delete(j);
    return rc < 0 ? err_wrap(e, "%s: chat_template", path) : rc;
}

static int from_jinja(struct chat *c, struct chat_entry *slot, const char *path, struct err *e)
{
    size_t n;
    char *src = file_read(path, CONFIG_MAX, &n, e);
    int rc = src ? compile(c, slot, src, e) : -1;
    if (src && rc != 0)
        err_wrap(e, "%s", path);
    free(src);
    return rc;
}

/* transformers 5 saves named templates in files of a folder. The default is not there. */
static int from_named(struct chat *c, const char *dir, struct err *e)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/" HUB_TEMPLATES "tool_use.jinja", dir);
    return model_file_exists(path) ? from_jinja(c, &c->with_tools, path, e) : 0;
}

/* A template alone leaves the model's own description of its tokenizer: *path is then NULL. */
static int from_config(struct chat *c, const char **path, struct err *e)
{
    const char *from = *path;
    if (!ends_with(from, ".jinja"))
        return from_json(c, from, true, e);
    *path = NULL;
    return from_jinja(c, &c->plain, from, e);
}

static int find_template(struct chat *c, const char *dir, struct err *e)
{
    static const char *const files[] = {"chat_template.jinja", "chat_template.json",
                                        "tokenizer_config.json", "processor_config.json"};
    char path[4096];
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, files[i]);
        if (!model_file_exists(path))
            continue;
        int rc = i == 0 ? from_jinja(c, &c->plain, path, e) : from_json(c, path, false, e);
        if (rc <= 0)
            return rc < 0 ? rc : from_named(c, dir, e);
    }
    return from_named(c, dir, e);
}

static cJSON *token(const struct tokenizer *t, const char *name)
{
    const char *s = tokenizer_special(t, name);
    return s ? cJSON_CreateString(s) : cJSON_CreateNull();
}

/* vLLM's fields: the configuration without file names, class and template. */
static int describe_tokenizer(struct chat *c, const char *dir, const char *config_path,
                              struct err *e)
{
    static const char *const left_out[] = {"vocab_file", "merges_file", "chat_template"};
    char path[4096];
    snprintf(path, sizeof(path), "%s/tokenizer_config.json", dir);
    const char *from = config_path ? config_path : path;
    cJSON *j =
        model_file_exists(from) ? model_file_json(from, CONFIG_MAX, e) : cJSON_CreateObject();
    if (!j)
        return e->kind ? -1 : err_nomem(e);
    for (size_t i = 0; i < sizeof(left_out) / sizeof(left_out[0]); i++)
        cJSON_DeleteItemFromObjectCaseSensitive(j, left_out[i]);
    if (!json_str(j, "tokenizer_class", NULL)) {
        cJSON_DeleteItemFromObjectCaseSensitive(j, "tokenizer_class");
        cJSON_AddStringToObject(j, "tokenizer_class", "PreTrainedTokenizerFast");
    }
    if (c->source)
        cJSON_AddStringToObject(j, "chat_template", c->source);
    c->info = cJSON_PrintUnformatted(j);
    cJSON_Delete(j);
    return c->info ? 0 : err_nomem(e);
}

const char *chat_tokenizer_info(const struct chat *c) { return c->info; }

struct chat *chat_load(const char *dir, const char *config_path, const struct tokenizer *t,
                       struct err *e)
{
    struct chat *c = calloc(1, sizeof(*c));
    if (!c) {
        err_nomem(e);
        return NULL;
    }
    c->tokenizer = t;
    c->bos = token(t, "bos_token");
    c->eos = token(t, "eos_token");
    int rc = t ? guard_learn(&c->guard, t, "", e) : 0;
    if (rc == 0)
        rc = config_path ? from_config(c, &config_path, e) : find_template(c, dir, e);
    if (rc < 0 || describe_tokenizer(c, dir, config_path, e) != 0 || !c->bos || !c->eos) {
        chat_free(c);
        return NULL;
    }
    if (c->plain.pairs)
        learn_parts(c, &c->plain);
    return c;
}

static void free_marks(struct chat_marks *m)
{
    const char *all[] = {m->marker, m->around, m->video, m->around_video};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        free((void *)(uintptr_t)all[i]);
}

void chat_free(struct chat *c)
{
    if (!c)
        return;
    template_free(c->plain.t);
    template_free(c->with_tools.t);
    guard_free(&c->guard);
    cJSON_Delete(c->bos);
    cJSON_Delete(c->eos);
    free(c->source);
    cJSON_free(c->info);
    free_marks(&c->marks);
    free(c);
}

struct chat *chat_with_template(const struct chat *c, const char *source, struct err *e)
{
    struct chat *own = calloc(1, sizeof(*own));
    if (own) {
        own->tokenizer = c->tokenizer;
        own->bos = cJSON_Duplicate(c->bos, true);
        own->eos = cJSON_Duplicate(c->eos, true);
    }
    if (own && own->bos && own->eos) {
        if (compile(own, &own->plain, source, e) != 0)
            err_wrap(e, "Template error");
        else if (!c->marks.marker || chat_see(own, &c->marks, e) == 0)
            return own;
    } else {
        err_nomem(e);
    }
    chat_free(own);
    return NULL;
}

void chat_trust_messages(struct chat *c)
{
    c->tokenizer = NULL;
    guard_free(&c->guard);
}

const struct guard *chat_guard(const struct chat *c) { return &c->guard; }

/* ---------------------------------------------------------------- messages */

const char *chat_check(cJSON *messages, bool takes_images, int *index)
{
    *index = 0;
    for (cJSON *m = messages->child; m; m = m->next, ++*index) {
        const char *what = message_check(m, takes_images);
        if (what)
            return what;
    }
    return NULL;
}

static int add_to_last_user(const struct guard *g, cJSON *list, const char *more)
{
    cJSON *last = NULL;
    for (cJSON *m = list->child; m; m = m->next)
        if (!strcmp(json_str(m, "role", ""), "user") && json_get(m, "content"))
            last = m;
    if (!last)
        return 0;
    struct buf b = BUF_INIT;
    if (cJSON_IsArray(json_get(last, "content"))) {
        guard_text(g, more, strlen(more), &b);
        cJSON *part = b.oom ? NULL : picture_text_part(b.p);
        cJSON *parts = cJSON_GetObjectItemCaseSensitive(last, "content");
        buf_free(&b);
        return part && cJSON_AddItemToArray(parts, part) ? 0 : -1;
    }
    buf_str(&b, json_str(last, "content", ""));
    guard_text(g, more, strlen(more), &b);
    cJSON *text = b.oom ? NULL : cJSON_CreateString(b.p);
    buf_free(&b);
    return json_put(last, "content", text) ? 0 : -1;
}

struct conversation { /* the inputs of a prompt */
    const cJSON *messages, *tools, *variables;
    const char *more;
    enum chat_ending ending;
    bool parts; /* messages with images are lists */
    enum roles_fit roles;
    enum beside_calls beside;
    bool arguments_as_text; /* as clients send them: DeepSeek-R1's template concatenates them */
};

static cJSON *for_template(const struct chat *c, const struct chat_entry *t,
                           const struct conversation *v)
{
    cJSON *list = cJSON_Duplicate(v->messages, true);
    int rc = list ? 0 : -1;
    for (cJSON *m = list ? list->child : NULL; m && rc == 0; m = m->next) {
        const struct message_form form = {
            .list = t->parts_all || (v->parts && pictures_in(m)),
            .around = c->marks.around,
            .around_video = c->marks.around_video,
            .developer = t->developer,
            .calls = t->calls,
            .thoughts = t->thoughts,
            .channels = t->style.channels,
            .last = !m->next,
            .beside = v->beside,
            .arguments_as_text = v->arguments_as_text,
        };
        rc = message_settle(m, &c->guard, &form);
    }
    if (rc == 0 && v->more)
        rc = add_to_last_user(&c->guard, list, v->more);
    if (rc == 0)
        return list;
    cJSON_Delete(list);
    return NULL;
}

static const struct chat_entry *entry_for(const struct chat *c, bool with_tools)
{
    return with_tools && c->with_tools.t ? &c->with_tools : &c->plain;
}

struct chat_style chat_style(const struct chat *c, bool with_tools)
{
    struct chat_style s = entry_for(c, with_tools)->style;
    s.calls = s.calls ? s.calls : &call_format_bare;
    return s;
}

/* Sets *out to a copy with guards of the documents in `variables`, if there are any. */
static int guard_documents(const struct chat *c, const cJSON *variables, cJSON **out)
{
    *out = NULL;
    if (!c->guard.n || !json_get(variables, "documents"))
        return 0;
    if (!(*out = cJSON_Duplicate(variables, true)))
        return -1;
    return guard_strings(&c->guard, cJSON_GetObjectItemCaseSensitive(*out, "documents"));
}

static int guard_tools(const struct chat *c, const cJSON *tools, cJSON **out)
{
    *out = NULL;
    if (!c->guard.n || !tools)
        return 0;
    *out = cJSON_Duplicate(tools, true);
    return *out ? guard_strings(&c->guard, *out) : -1;
}

/* 1: not rendered, because v->roles changes nothing. */
static int render_once(const struct chat *c, const struct chat_entry *entry,
                       const struct conversation *v, struct buf *out, struct err *e)
{
    cJSON *list = for_template(c, entry, v);
    cJSON *variables = NULL, *tools = NULL;
    const int fitted = list ? roles_fit(list, v->roles, entry->calls) : -1;
    if (v->roles != ROLES_AS_GIVEN && fitted == 0) {
        cJSON_Delete(list);
        return 1;
    }
    if (fitted < 0 || guard_documents(c, v->variables, &variables) != 0 ||
        guard_tools(c, v->tools, &tools) != 0) {
        cJSON_Delete(list);
        cJSON_Delete(variables);
        cJSON_Delete(tools);
        return err_nomem(e);
    }
    const cJSON *last = list->child ? list->child->prev : NULL;
    bool may =
        last && !strcmp(json_str(last, "role", ""), "assistant") && *json_str(last, "content", "");
    bool go_on = v->ending == CHAT_CONTINUE || (v->ending == CHAT_DEFAULT && may);
    struct chat_input in = {
        .messages = list,
        .tools = tools ? tools : v->tools,
        .bos_token = c->bos,
        .eos_token = c->eos,
        .variables = variables ? variables : v->variables,
        .add_generation_prompt = !go_on && v->ending != CHAT_NOTHING,
        .continue_field = go_on ? "content" : NULL,
    };
    int rc = chat_render(entry->t, &in, NULL, out, e);
    cJSON_Delete(list);
    cJSON_Delete(variables);
    cJSON_Delete(tools);
    if (rc != 0 && e->kind == ERR_TEMPLATE)
        err_wrap(e, "Template error");
    return rc;
}

static bool any_calls(const cJSON *messages)
{
    const cJSON *m;
    cJSON_ArrayForEach(m, messages)
    {
        if (json_get(m, "tool_calls"))
            return true;
    }
    return false;
}

/* What the template refuses as it is given is changed, step by step, until the template accepts it:
 * the form of calls, then the roles. If it accepts nothing, its first words are the error. */
static int render(const struct chat *c, const struct chat_entry *entry,
                  const struct conversation *v, struct buf *out, struct err *e)
{
    const int forms = entry->calls && any_calls(v->messages) ? 2 * BESIDES : 1;
    const int steps = entry->raises ? ROLES_FITS * forms : forms;
    const size_t before = out->len;
    int rc = render_once(c, entry, v, out, e);
    for (int i = 1; i < steps && rc != 0 && e->kind == ERR_TEMPLATE; i++) {
        struct conversation fitted = *v;
        struct err other = ERR_INIT;
        fitted.roles = (enum roles_fit)(i / forms);
        fitted.beside = (enum beside_calls)(i % forms % BESIDES);
        fitted.arguments_as_text = i % forms >= BESIDES;
        out->len = before;
        int again = render_once(c, entry, &fitted, out, &other);
        if (again == 0 || (again < 0 && other.kind != ERR_TEMPLATE)) {
            *e = other;
            rc = again;
        }
    }
    return rc;
}

static uint32_t occurrences(const struct buf *b, size_t from, const char *of)
{
    uint32_t n = 0;
    const char *at = b->p ? b->p + from : NULL;
    for (; of && *of && at && (at = strstr(at, of)); at += strlen(of))
        n++;
    return n;
}

int chat_prompt(const struct chat *c, const cJSON *messages, const cJSON *tools,
                const cJSON *variables, const char *more, enum chat_ending ending, struct buf *out,
                struct err *e)
{
    const struct chat_entry *entry = entry_for(c, tools != NULL);
    struct conversation v = {messages, tools, variables, more, ending, .parts = true};
    const uint32_t pictures = pictures_count(messages);
    const size_t before = out->len;
    if (!entry->t)
        return err_set(e, ERR_TEMPLATE, "Template error: template not found");
    int rc = render(c, entry, &v, out, e);
    if (!pictures || (rc == 0 && occurrences(out, before, c->marks.marker) +
                                         occurrences(out, before, c->marks.video) ==
                                     pictures))
        return rc;
    out->len = before; /* no parts supported: retry as text */
    *e = (struct err)ERR_INIT;
    v.parts = false;
    return render(c, entry, &v, out, e);
}

/* Does the template render this text, given as a string or as a list of parts? */
static bool shows(const struct chat *c, struct chat_entry *t, bool parts)
{
    static const char word[] = "b7d1f3";
    struct buf out = BUF_INIT;
    struct err ignored = ERR_INIT;
    cJSON *list = cJSON_CreateArray();
    const bool made = (!t->pairs || message_add(list, "system", "")) && /* it may expect one */
                      message_add(list, t->pairs ? "query" : "user", word) &&
                      (!t->pairs || message_add(list, "document", ""));
    const struct conversation v = {.messages = list};
    t->parts_all = parts;
    const bool ok =
        made && render_once(c, t, &v, &out, &ignored) == 0 && occurrences(&out, 0, word) == 1;
    t->parts_all = false;
    cJSON_Delete(list);
    buf_free(&out);
    return ok;
}

static void learn_parts(const struct chat *c, struct chat_entry *t)
{
    t->parts_all = !shows(c, t, false) && shows(c, t, true);
}

bool chat_pairs(const struct chat *c) { return c->plain.pairs; }

static bool add_part(cJSON *parts, cJSON *part)
{
    if (part && cJSON_AddItemToArray(parts, part))
        return true;
    cJSON_Delete(part);
    return false;
}

/* The content of a message: the text, with images in place of markers. */
static bool show_marks(cJSON *message, const char *text, const char *marker)
{
    cJSON *parts = cJSON_CreateArray();
    bool ok = parts != NULL;
    for (const char *mark; ok && (mark = strstr(text, marker)); text = mark + strlen(marker)) {
        char *before = strndup(text, (size_t)(mark - text));
        ok = before && (!*before || add_part(parts, picture_text_part(before))) &&
             add_part(parts, picture_part("", NULL));
        free(before);
    }
    if (ok && (!*text || add_part(parts, picture_text_part(text))) &&
        json_put(message, "content", parts))
        return true;
    cJSON_Delete(parts);
    return false;
}

static bool add_half(cJSON *list, const char *role, const char *text, const char *marker)
{
    cJSON *m = message_add(list, role, text);
    return m && (!marker || !strstr(text, marker) || show_marks(m, text, marker));
}

int chat_pair(const struct chat *c, const char *task, const struct chat_pair_text *pair, bool opens,
              struct buf *out, struct err *e)
{
    cJSON *list = cJSON_CreateArray();
    const bool made = (!task || message_add(list, "system", task)) &&
                      add_half(list, "query", pair->query, pair->marker) &&
                      add_half(list, "document", pair->document, pair->marker);
    const enum chat_ending ending = opens ? CHAT_ANSWER : CHAT_NOTHING;
    int rc = made ? chat_prompt(c, list, NULL, NULL, NULL, ending, out, e) : err_nomem(e);
    cJSON_Delete(list);
    return rc;
}

static int copy(const char *from, const char **to)
{
    return !from || (*to = strdup(from)) ? 0 : -1;
}

int chat_see(struct chat *c, const struct chat_marks *marks, struct err *e)
{
    struct chat_entry *entries[] = {&c->plain, &c->with_tools};
    if (copy(marks->marker, &c->marks.marker) || copy(marks->around, &c->marks.around) ||
        copy(marks->video, &c->marks.video) || copy(marks->around_video, &c->marks.around_video))
        return err_nomem(e);
    for (int i = 0; i < 2; i++)
        if (entries[i]->t)
            learn_parts(c, entries[i]);
    return 0;
}
