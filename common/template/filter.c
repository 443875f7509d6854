#include "common/template/filter.h"
#include "common/json/exact.h"
#include "common/template/chat.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int64_t read_now(const cJSON *now)
{
    struct tm tm = {.tm_isdst = -1};
    if (cJSON_IsNumber(now)) /* any year of four digits */
        return fabs(now->valuedouble) < 253402300800.0 ? (int64_t)now->valuedouble : 0;
    if (cJSON_IsString(now) && (strptime(now->valuestring, "%Y-%m-%dT%H:%M:%S", &tm) ||
                                strptime(now->valuestring, "%Y-%m-%d %H:%M:%S", &tm))) {
        tm.tm_isdst = -1;
        return mktime(&tm);
    }
    return 0;
}

static int render_line(const struct template *t, const cJSON *j, struct buf *text, struct err *e)
{
    const cJSON *go_on = json_get(j, "continue_final_message");
    struct template_limits limits = {.now = read_now(json_get(j, "now")), .bare_errors = true};
    struct chat_input in = {
        .messages = json_get(j, "messages"),
        .tools = json_get(j, "tools"),
        .documents = json_get(j, "documents"),
        .bos_token = cJSON_GetObjectItemCaseSensitive(j, "bos_token"),
        .eos_token = cJSON_GetObjectItemCaseSensitive(j, "eos_token"),
        .variables = json_get(j, "variables"),
        .add_generation_prompt = json_bool(j, "add_generation_prompt", false),
        .continue_field = cJSON_IsString(go_on) ? go_on->valuestring
                          : cJSON_IsTrue(go_on) ? "content"
                                                : NULL,
    };
    return chat_render(t, &in, &limits, text, e);
}

static void answer(const struct template *t, const char *line, size_t n, struct buf *out)
{
    struct err e = ERR_INIT;
    struct buf text = BUF_INIT, exact = BUF_INIT;
    cJSON *j = json_parse_exact(line, n, &e);
    if (j)
        template_keep_numbers(j, line, n);
    bool ok = j && render_line(t, j, &text, &e) == 0;
    json_text_exact(&exact, text.p ? text.p : ""); /* with U+0000 */
    buf_str(out, ok ? "{\"text\":" : "{\"error\":");
    if (ok)
        buf_json_str(out, exact.p ? exact.p : "", exact.len);
    else
        buf_json_str(out, e.msg, strlen(e.msg));
    buf_str(out, "}\n");
    cJSON_Delete(j);
    out->oom |= exact.oom;
    buf_free(&exact);
    buf_free(&text);
}

int template_filter(const char *template_path, FILE *in, FILE *out, struct err *e)
{
    size_t n = 0, cap = 0;
    char *line = NULL, *src = file_read(template_path, 4u << 20, &n, e);
    struct buf b = BUF_INIT;
    struct template *t = src ? template_compile(src, n, e) : NULL;
    int rc = t ? 0 : err_wrap(e, "%s", template_path);
    for (ssize_t len; rc == 0 && (len = getline(&line, &cap, in)) >= 0;) {
        while (len && (line[len - 1] == '\n' || line[len - 1] == '\r'))
            len--;
        if (!len)
            continue;
        buf_reset(&b);
        answer(t, line, (size_t)len, &b);
        if (b.oom)
            rc = err_nomem(e);
        else if (fwrite(b.p, 1, b.len, out) != b.len || fflush(out) != 0)
            rc = err_sys(e, "write");
    }
    if (rc == 0 && ferror(in))
        rc = err_sys(e, "read");
    buf_free(&b);
    free(line);
    free(src);
    template_free(t);
    return rc;
}
