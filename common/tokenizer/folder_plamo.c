/* PLaMo's vocabulary: lines that are lists of a text, a score, and a word for its kind. The n-th
 * line is token n. */
#include "common/cleanup.h"
#include "common/tokenizer/folder_impl.h"
#include "common/tokenizer/likely.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_BYTES = 1 << 16 };

/* As llama.cpp's converter has them. */
static bool is_control(const char *kind, const char *text, size_t n)
{
    static const char begin[] = "<|plamo:";
    return strcmp(kind, "CONTROL") == 0 || strcmp(kind, "UNKNOWN") == 0 ||
           (strncmp(text, begin, sizeof(begin) - 1) == 0 && strcmp(text + n - 2, "|>") == 0);
}

static int put_token(struct tok_folder *f, struct buf *model, const cJSON *line, uint32_t id,
                     struct err *e)
{
    const cJSON *text = cJSON_GetArrayItem(line, 0), *score = cJSON_GetArrayItem(line, 1);
    const cJSON *word = cJSON_GetArrayItem(line, 2);
    const char *s = cJSON_IsString(text) ? text->valuestring : "";
    const char *kind = cJSON_IsString(word) ? word->valuestring : "NORMAL";
    const size_t n = strlen(s);
    if (!n || !cJSON_IsNumber(score) || !isfinite(score->valuedouble))
        return err_set(e, ERR_VALIDATION, "token %u is no list of a text and a score", id);
    likely_put(model, s, n, score->valuedouble, strcmp(kind, "BYTE") != 0, id == 0);
    if (is_control(kind, s, n))
        folder_add(f, id, s, n, true);
    return vocab_put(&f->ids, s, n, id, e);
}

static int put_line(struct tok_folder *f, struct buf *model, const char *line, uint32_t id,
                    struct err *e)
{
    const size_t n = strlen(line);
    if (id == VOCAB_MAX_ID || n > LINE_MAX_BYTES)
        return err_set(e, ERR_VALIDATION, "token %u or its line is too long", id);
    cJSON *j = json_parse(line, n, e);
    const int rc = j ? put_token(f, model, j, id, e) : -1;
    if (!j)
        err_wrap(e, "token %u", id);
    cJSON_Delete(j);
    return rc;
}

int folder_plamo(struct tok_folder *f, struct folder_text *t, struct err *e)
{
    size_t n;
    uint32_t id = 0;
    CLEANUP(cleanup_free) char *text = folder_read(f, FOLDER_PLAMO, &n, e);
    if (!text)
        return -1;
    if (strlen(text) != n)
        return err_set(e, ERR_VALIDATION, "a zero byte");
    likely_put_steps(&t->steps);
    likely_put_model(&t->model);
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
        if (!*line)
            continue;
        if (put_line(f, &t->model, line, id++, e))
            return -1;
    }
    if (!id)
        return err_set(e, ERR_VALIDATION, "no tokens");
    buf_str(&t->model, "]}");
    t->bos = "<|plamo:bos|>";
    t->eos = "<|plamo:eos|>";
    t->add_bos = true;
    return 0;
}
