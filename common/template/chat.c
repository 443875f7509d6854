#include "common/template/chat.h"
#include "common/template/space.h"
#include <string.h>

/* transformers appends this tag to the last message and cuts there. The space at its end shows
 * whether the template strips white space at the end of the message. */
static const char TAG[] = "CONTINUE_FINAL_MESSAGE_TAG ";
enum { TAG_LEN = sizeof(TAG) - 1 };

static const char no_text[] = "continue_final_message is set but we could not find any text to "
                              "continue in the final message!";

static int append_tag(cJSON *text, struct err *e)
{
    struct buf b = BUF_INIT;
    buf_str(&b, text->valuestring);
    buf_str(&b, TAG);
    bool ok = !b.oom && cJSON_SetValuestring(text, b.p);
    buf_free(&b);
    return ok ? 0 : err_nomem(e);
}

/* The string to continue, in the last message (already a copy). */
static cJSON *text_to_continue(cJSON *message, const char *field, struct err *e)
{
    cJSON *c = cJSON_GetObjectItemCaseSensitive(message, field);
    if (cJSON_IsString(c))
        return c;
    if (!c || cJSON_IsNull(c))
        return err_set(e, ERR_TEMPLATE,
                       "continue_final_message is set but the final message has no \"%s\" to "
                       "continue!",
                       field),
               NULL;
    for (int i = cJSON_IsArray(c) ? cJSON_GetArraySize(c) - 1 : -1; i >= 0; i--) {
        cJSON *text = cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(c, i), "text");
        if (cJSON_IsString(text))
            return text;
    }
    return err_set(e, ERR_TEMPLATE, "%s", no_text), NULL;
}

/* Cuts the rendered text after the message. `final` is the message without the tag. */
static int cut(struct buf *out, size_t start, const char *final, struct err *e)
{
    const char *p = out->p + start, *tag = NULL, *from = p;
    size_t n = out->len - start, skip = space_prefix(final, strlen(final));
    size_t len = trimmed_len(final + skip, strlen(final + skip));
    for (const char *hit; (hit = memmem(from, n - (size_t)(from - p), TAG, TAG_LEN - 1));)
        tag = from = hit + TAG_LEN - 1;
    if (!tag || !memmem(p, n, final + skip, len))
        return err_set(
            e, ERR_TEMPLATE,
            "continue_final_message is set but the final message does not appear in the "
            "chat after applying the chat template! This can happen if the chat template "
            "deletes portions of the final message. Please verify the chat template and "
            "final message in your chat to ensure they are compatible.");
    size_t end = (size_t)(tag - p) - (TAG_LEN - 1);
    bool kept = (size_t)(tag - p) < n && *tag == ' ';
    out->len = start + (kept ? end : trimmed_len(p, end));
    out->p[out->len] = 0;
    return 0;
}

static bool put(cJSON *vars, const char *name, const cJSON *v)
{
    return !v || cJSON_AddItemReferenceToObject(vars, name, (cJSON *)v); /* v is only read */
}

static cJSON *variables(const struct chat_input *in, const cJSON *messages)
{
    cJSON *vars = cJSON_CreateObject();
    bool ok = vars && put(vars, "messages", messages) && put(vars, "bos_token", in->bos_token) &&
              put(vars, "eos_token", in->eos_token) &&
              (in->tools ? put(vars, "tools", in->tools)
                         : cJSON_AddNullToObject(vars, "tools") != NULL) &&
              (in->documents ? put(vars, "documents", in->documents)
                             : cJSON_AddNullToObject(vars, "documents") != NULL) &&
              cJSON_AddBoolToObject(vars, "add_generation_prompt", in->add_generation_prompt);
    for (const cJSON *v = in->variables ? in->variables->child : NULL; ok && v; v = v->next)
        ok = put(vars, v->string, v);
    if (ok)
        return vars;
    cJSON_Delete(vars);
    return NULL;
}

/* The messages, with the last one replaced by a copy that may be changed. */
static cJSON *with_own_last(const cJSON *messages)
{
    cJSON *list = cJSON_CreateArray();
    for (const cJSON *m = messages->child; list && m; m = m->next) {
        cJSON *last = m->next ? NULL : cJSON_Duplicate(m, true);
        if (m->next ? cJSON_AddItemReferenceToArray(list, (cJSON *)m)
                    : cJSON_AddItemToArray(list, last))
            continue;
        cJSON_Delete(last);
        cJSON_Delete(list);
        return NULL;
    }
    return list;
}

static int render(const struct template *t, const struct chat_input *in, const cJSON *messages,
                  const struct template_limits *limits, struct buf *out, struct err *e)
{
    cJSON *vars = variables(in, messages);
    int rc = vars ? template_render(t, vars, limits, out, e) : err_nomem(e);
    cJSON_Delete(vars);
    return rc;
}

static int render_open(const struct template *t, const struct chat_input *in,
                       const struct template_limits *limits, struct buf *out, struct err *e)
{
    size_t start = out->len;
    struct buf final = BUF_INIT;
    int rc = -1;
    cJSON *messages = with_own_last(in->messages), *text = NULL;
    if (!messages) {
        err_nomem(e);
        goto done;
    }
    if (!messages->child) {
        err_set(e, ERR_TEMPLATE, "continue_final_message is set but the conversation is empty!");
        goto done;
    }
    if (!(text = text_to_continue(messages->child->prev, in->continue_field, e)))
        goto done;
    buf_str(&final, text->valuestring);
    if (append_tag(text, e) || render(t, in, messages, limits, out, e))
        goto done;
    rc = final.oom ? err_nomem(e) : cut(out, start, final.p ? final.p : "", e);
    if (rc)
        out->len = start;
done:
    buf_free(&final);
    cJSON_Delete(messages);
    return rc;
}

int chat_render(const struct template *t, const struct chat_input *in,
                const struct template_limits *limits, struct buf *out, struct err *e)
{
    if (!cJSON_IsArray(in->messages))
        return err_set(e, ERR_TEMPLATE, "messages must be an array");
    if (!in->continue_field)
        return render(t, in, in->messages, limits, out, e);
    if (in->add_generation_prompt)
        return err_set(e, ERR_TEMPLATE,
                       "continue_final_message and add_generation_prompt are not compatible. Use "
                       "continue_final_message when you want the model to continue the final "
                       "message, and add_generation_prompt when you want to add a header that will "
                       "prompt it to start a new assistant message instead.");
    return render_open(t, in, limits, out, e);
}
