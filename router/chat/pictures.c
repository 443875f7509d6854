#include "router/chat/pictures.h"
#include "common/buf.h"
#include "common/json/json.h"
#include "router/chat/parts.h"
#include <string.h>

/* As Qwen's processors sample videos, and as its own API counts frames without `fps`. */
#define DEFAULT_FPS 2.0
#define LEAST_FPS   0.001
#define MOST_FPS    1000.0

bool picture_is(const cJSON *part)
{
    const char *type = json_str(part, "type", "");
    return !strcmp(type, "image_url") || !strcmp(type, "input_image") /* the second: Responses */
           || picture_is_video(part);
}

bool picture_is_video(const cJSON *part)
{
    return !strcmp(json_str(part, "type", ""), "video_url");
}

/* `image_url` is an object with `url`, or, from many clients, the URL itself. */
static const char *url_of(const cJSON *part)
{
    const cJSON *v = json_get(part, picture_is_video(part) ? "video_url" : "image_url");
    return cJSON_IsString(v) ? v->valuestring : json_str(v, "url", NULL);
}

const char *picture_url(const cJSON *part) { return picture_is(part) ? url_of(part) : NULL; }

/* The URL without blanks around it. */
static struct ask_image image_of(const cJSON *part)
{
    static const char blanks[] = " \t\r\n";
    const char *url = url_of(part);
    url += strspn(url, blanks);
    size_t n = strlen(url);
    while (n > 0 && strchr(blanks, url[n - 1]))
        n--;
    return (struct ask_image){.url = url,
                              .n_url = n,
                              .video = picture_is_video(part),
                              .fps = json_num(part, "fps", DEFAULT_FPS),
                              .where = json_str(part, "where", NULL)};
}

static bool good_fps(const cJSON *part)
{
    const cJSON *v = json_get(part, "fps");
    return !v || (cJSON_IsNumber(v) && v->valuedouble >= LEAST_FPS && v->valuedouble <= MOST_FPS);
}

const char *picture_check(const cJSON *part, const char *role, bool takes_images)
{
    if (!picture_is(part))
        return NULL;
    if (!takes_images)
        return "image inputs are not supported by this model";
    if (strcmp(role, "user") != 0 && strcmp(role, "tool") != 0)
        return "images may stand in messages of the roles `user` and `tool` only";
    if (picture_is_video(part) && !good_fps(part))
        return "`fps` of a video must be a number from 0.001 to 1000";
    if (picture_is_video(part) && !url_of(part))
        return "missing field `url` of `video_url`";
    return url_of(part) ? NULL : "missing field `url` of `image_url`";
}

uint32_t pictures_count(const cJSON *messages)
{
    uint32_t n = 0;
    for (const cJSON *m = json_first(messages); m; m = m->next)
        for (const cJSON *p = json_first(json_get(m, "content")); p; p = p->next)
            n += picture_is(p);
    return n;
}

int pictures_collect(const cJSON *messages, struct arena *a, struct ask *q, struct err *e)
{
    const uint32_t n = pictures_count(messages);
    struct ask_image *v = n ? ARENA_NEW(a, struct ask_image, n) : NULL;
    q->images = v;
    q->n_images = 0;
    if (n && !v)
        return err_nomem(e);
    for (const cJSON *m = json_first(messages); m; m = m->next)
        for (const cJSON *p = json_first(json_get(m, "content")); p; p = p->next)
            if (v && picture_is(p))
                v[q->n_images++] = image_of(p);
    return 0;
}

bool pictures_have_videos(const cJSON *messages)
{
    for (const cJSON *m = json_first(messages); m; m = m->next)
        for (const cJSON *p = json_first(json_get(m, "content")); p; p = p->next)
            if (picture_is_video(p))
                return true;
    return false;
}

bool pictures_in(const cJSON *message)
{
    for (const cJSON *p = json_first(json_get(message, "content")); p; p = p->next)
        if (picture_is(p))
            return true;
    return false;
}

/* ---------------------------------------------------------------- for templates */

static cJSON *typed(const char *type)
{
    cJSON *p = cJSON_CreateObject();
    if (p && cJSON_AddStringToObject(p, "type", type))
        return p;
    cJSON_Delete(p);
    return NULL;
}

cJSON *picture_text_part(const char *text)
{
    cJSON *p = typed("text");
    if (p && cJSON_AddStringToObject(p, "text", text))
        return p;
    cJSON_Delete(p);
    return NULL;
}

static bool add(cJSON *list, cJSON *part)
{
    if (part && cJSON_AddItemToArray(list, part))
        return true;
    cJSON_Delete(part);
    return false;
}

bool pictures_as_parts(cJSON *message)
{
    const cJSON *content = json_get(message, "content");
    cJSON *list = content ? cJSON_CreateArray() : NULL;
    bool ok = list != NULL;
    if (!content)
        return true;
    if (ok && cJSON_IsString(content))
        ok = add(list, picture_text_part(content->valuestring));
    for (const cJSON *p = json_first(content); ok && p; p = p->next)
        ok = add(list, picture_is_video(p)   ? typed("video")
                       : picture_is(p)       ? typed("image")
                       : parts_is_thought(p) ? cJSON_Duplicate(p, true)
                                             : picture_text_part(json_str(p, "text", "")));
    if (ok)
        return json_put(message, "content", list);
    cJSON_Delete(list);
    return false;
}

bool pictures_as_text(cJSON *message, const char *around, const char *around_video)
{
    struct buf b = BUF_INIT;
    buf_reserve(&b, 0);
    for (const cJSON *p = json_first(json_get(message, "content")); p; p = p->next) {
        const char *text = picture_is_video(p) ? around_video
                           : picture_is(p)     ? around
                                               : json_str(p, "text", "");
        buf_str(&b, text ? text : "");
    }
    cJSON *text = b.oom ? NULL : cJSON_CreateString(b.p);
    buf_free(&b);
    return json_put(message, "content", text);
}

/* ---------------------------------------------------------------- of other protocols */

cJSON *picture_part(const char *url, const char *where)
{
    cJSON *p = typed("image_url");
    cJSON *v = p ? cJSON_AddObjectToObject(p, "image_url") : NULL;
    if (v && cJSON_AddStringToObject(v, "url", url) &&
        (!where || cJSON_AddStringToObject(p, "where", where)))
        return p;
    cJSON_Delete(p);
    return NULL;
}

cJSON *picture_part_base64(const char *type, const char *base64, const char *where)
{
    struct buf url = BUF_INIT;
    buf_fmt(&url, "data:%s;base64,", type);
    buf_str(&url, base64);
    cJSON *p = url.oom ? NULL : picture_part(url.p, where);
    buf_free(&url);
    return p;
}
