#include "router/chat/parts.h"
#include "common/buf.h"
#include "common/image/data_url.h"
#include "common/json/json.h"
#include "common/utf8.h"
#include "router/chat/pictures.h"
#include <stdlib.h>
#include <string.h>

static const char *type_of(const cJSON *part) { return json_str(part, "type", ""); }

static bool is_any(const char *type, const char *const *of)
{
    for (; *of; of++)
        if (!strcmp(type, *of))
            return true;
    return false;
}

static const char *const texts[] = {"text", "input_text", "output_text", NULL};

/* The text of a part, or NULL. */
static const char *text_of(const cJSON *part)
{
    if (cJSON_IsString(part))
        return part->valuestring;
    if (is_any(type_of(part), texts))
        return json_str(part, "text", NULL);
    return !strcmp(type_of(part), "refusal") ? json_str(part, "refusal", NULL) : NULL;
}

/* Its base64 is in a data URL, or alone. */
bool parts_file_text(const cJSON *part, struct buf *out)
{
    const cJSON *file = json_get(part, "file") ? json_get(part, "file") : part;
    const char *data = json_str(file, "file_data", NULL), *name = json_str(file, "filename", "");
    const char *comma = data && data_url_is(data, strlen(data)) ? strchr(data, ',') : NULL;
    struct err ignored;
    size_t len;
    data = comma ? comma + 1 : data;
    uint8_t *bytes = data ? malloc(strlen(data) / 4 * 3 + 3) : NULL;
    bool ok = bytes && base64_decode_lenient(data, strlen(data), bytes, &len, &ignored) == 0 &&
              !memchr(bytes, 0, len) && utf8_valid((const char *)bytes, len);
    if (ok) {
        buf_fmt(out, "\n%s%s", name, *name ? ":\n" : "");
        buf_add(out, bytes, len);
        buf_ch(out, '\n');
    }
    free(bytes);
    return ok;
}

static bool is_file(const cJSON *part)
{
    static const char *const files[] = {"file", "input_file", NULL};
    return is_any(type_of(part), files);
}

bool parts_is_thought(const cJSON *part)
{
    static const char *const thoughts[] = {"thinking", "reasoning", "redacted_thinking", NULL};
    return is_any(type_of(part), thoughts);
}

/* ---------------------------------------------------------------- validation */

/* Why a part of this type is refused. */
static const char *unknown_part(const char *type, bool takes_images)
{
    static const char *const videos[] = {"video", "input_video", NULL};
    static const char *const audio[] = {"input_audio", "audio_url", "audio", NULL};
    if (is_any(type, videos))
        return takes_images ? "a video is a part of type `video_url`" : "videos are not supported";
    if (is_any(type, audio))
        return "audio is not supported";
    return takes_images ? "a content part must have the type `text` or `image_url`"
                        : "a content part must have the type `text`";
}

/* Replaces a file by its text, and sets *part to that. Returns what is wrong, or NULL. */
static const char *open_file(cJSON *parts, cJSON **part)
{
    struct buf b = BUF_INIT;
    const bool ok = parts_file_text(*part, &b);
    cJSON *text = ok && !b.oom ? picture_text_part(b.p) : NULL;
    buf_free(&b);
    if (!ok)
        return PARTS_NO_FILE;
    if (!text || !cJSON_ReplaceItemViaPointer(parts, *part, text)) {
        cJSON_Delete(text);
        return "out of memory";
    }
    *part = text;
    return NULL;
}

const char *parts_check(cJSON *parts, const char *role, bool takes_images)
{
    for (cJSON *p = parts->child; p; p = p->next) {
        const char *type = type_of(p), *wrong = picture_check(p, role, takes_images);
        if (wrong)
            return wrong;
        if (picture_is(p) || parts_is_thought(p) || text_of(p))
            continue;
        if (is_file(p) && !(wrong = open_file(parts, &p)))
            continue;
        if (wrong)
            return wrong;
        return is_any(type, texts)        ? "missing field `text`"
               : !strcmp(type, "refusal") ? "missing field `refusal`"
                                          : unknown_part(type, takes_images);
    }
    return NULL;
}

/* ---------------------------------------------------------------- for templates */

/* Appends the reasoning of a part: a text, or a list of parts (Mistral's, OpenAI's summaries). */
static void add_thought(const cJSON *part, struct buf *out)
{
    const cJSON *v = json_get(part, "thinking");
    v = v ? v : json_get(part, "reasoning");
    v = v ? v : json_get(part, "text");
    v = v ? v : json_get(part, "summary");
    if (cJSON_IsString(v))
        buf_str(out, v->valuestring);
    for (const cJSON *p = json_first(v); p; p = p->next)
        buf_str(out, cJSON_IsString(p) ? p->valuestring : json_str(p, "text", ""));
}

static cJSON *thought_part(const char *text)
{
    cJSON *p = cJSON_CreateObject();
    if (p && cJSON_AddStringToObject(p, "type", "thinking") &&
        cJSON_AddStringToObject(p, "thinking", text))
        return p;
    cJSON_Delete(p);
    return NULL;
}

/* The part that a template gets for `part`. NULL: none, or out of memory. */
static cJSON *settled(const cJSON *part, bool thoughts, struct buf *reasoning)
{
    if (picture_is(part))
        return cJSON_Duplicate(part, true);
    if (!parts_is_thought(part))
        return picture_text_part(text_of(part));
    struct buf b = BUF_INIT;
    add_thought(part, reasoning ? reasoning : &b);
    cJSON *p = reasoning || b.oom ? NULL
               : thoughts         ? thought_part(b.p ? b.p : "")
                                  : picture_text_part(b.p ? b.p : "");
    buf_free(&b);
    return p;
}

/* `reasoning` (NULL: it stays) gets the reasoning of the parts. */
static int settle_list(cJSON *message, bool thoughts, struct buf *reasoning)
{
    cJSON *list = cJSON_CreateArray();
    for (const cJSON *p = json_first(json_get(message, "content")); list && p; p = p->next) {
        cJSON *part = settled(p, thoughts, reasoning);
        if (part ? cJSON_AddItemToArray(list, part) : (reasoning && parts_is_thought(p)))
            continue;
        cJSON_Delete(part);
        cJSON_Delete(list);
        return -1;
    }
    return json_put(message, "content", list) ? 0 : -1;
}

/* Puts the reasoning in front of the content. */
static int think_in_parts(cJSON *message, const char *reasoning)
{
    const cJSON *content = json_get(message, "content");
    cJSON *list = cJSON_CreateArray(), *thought = thought_part(reasoning), *text = NULL;
    bool ok = list && thought && cJSON_AddItemToArray(list, thought);
    if (!ok)
        cJSON_Delete(thought);
    if (ok && cJSON_IsString(content) && content->valuestring[0]) {
        text = picture_text_part(content->valuestring);
        ok = text && cJSON_AddItemToArray(list, text);
    }
    for (const cJSON *p = json_first(content); ok && p; p = p->next)
        ok = cJSON_AddItemToArray(list, cJSON_Duplicate(p, true));
    if (ok)
        return json_put(message, "content", list) ? 0 : -1;
    cJSON_Delete(list);
    return -1;
}

static bool has_thoughts(const cJSON *content)
{
    for (const cJSON *p = json_first(content); p; p = p->next)
        if (parts_is_thought(p))
            return true;
    return false;
}

int parts_settle(cJSON *message, bool thoughts, bool last)
{
    const cJSON *content = json_get(message, "content");
    const char *role = json_str(message, "role", "");
    const bool assistant = !strcmp(role, "assistant"), own = assistant || !strcmp(role, "system");
    const char *given = json_str(message, "reasoning_content", json_str(message, "reasoning", ""));
    struct buf b = BUF_INIT;
    int rc = 0;
    if (cJSON_IsArray(content)) {
        const bool take = assistant && !thoughts && has_thoughts(content);
        rc = settle_list(message, thoughts && own, take ? &b : NULL);
        if (rc == 0 && take && !*given && b.len)
            rc = !b.oom && cJSON_AddStringToObject(message, "reasoning_content", b.p) ? 0 : -1;
        buf_free(&b);
    }
    if (rc == 0 && thoughts && assistant && !last && *given &&
        !has_thoughts(json_get(message, "content")))
        rc = think_in_parts(message, given);
    return rc;
}
