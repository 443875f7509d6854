/* Every render of TEST_DATA/expected/chat: 100 real templates, 37 conversations, byte for byte. */
#include "common/cleanup.h"
#include "common/json/json.h"
#include "common/template/chat.h"
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static const char *data_dir(void)
{
    const char *env = getenv("TEST_DATA");
    return env && *env ? env : TEST_DATA;
}

static char *path(const char *fmt, const char *name)
{
    char *p = NULL;
    char full[512];
    snprintf(full, sizeof(full), "%s/expected/chat/%s", data_dir(), fmt);
    size_t n = strlen(full) + strlen(name) + 1;
    p = malloc(n);
    const char *star = strchr(full, '*');
    if (star)
        snprintf(p, n, "%.*s%s%s", (int)(star - full), full, name, star + 1);
    else
        snprintf(p, n, "%s", full);
    return p;
}

struct tally {
    int rendered, errors, raised, bad;
};

static int64_t when(const char *iso)
{
    struct tm tm = {0};
    if (!strptime(iso, "%Y-%m-%dT%H:%M:%S", &tm))
        return 0;
    tm.tm_isdst = -1;
    return mktime(&tm);
}

static cJSON *merged(const cJSON *a, const cJSON *b)
{
    cJSON *o = cJSON_CreateObject();
    for (const cJSON *c = a ? a->child : NULL; c; c = c->next)
        cJSON_AddItemReferenceToObject(o, c->string, (cJSON *)c);
    for (const cJSON *c = b ? b->child : NULL; c; c = c->next)
        cJSON_AddItemReferenceToObject(o, c->string, (cJSON *)c);
    return o;
}

static void complain(struct tally *t, const cJSON *header, const cJSON *row, const char *got,
                     const char *want)
{
    if (t->bad++ < 10)
        fprintf(stderr, "%s / %s (add_generation_prompt %d)\n  want %.1500s\n  got  %.1500s\n",
                json_str(header, "template", "?"), json_str(row, "conversation", "?"),
                json_bool(row, "add_generation_prompt", false), want, got);
}

static void check_row(struct tally *tally, const struct template *t, const cJSON *header,
                      const cJSON *row, const cJSON *conversations)
{
    const cJSON *conv = json_get(conversations, json_str(row, "conversation", ""));
    struct template_limits limits = {.now = when(json_str(header, "now", "")), .bare_errors = true};
    cJSON *vars = merged(json_get(header, "extra_variables"), json_get(conv, "kwargs"));
    struct chat_input in = {
        .messages = json_get(conv, "messages"),
        .tools = json_get(conv, "tools"),
        .documents = json_get(conv, "documents"),
        .bos_token = cJSON_GetObjectItemCaseSensitive(header, "bos_token"),
        .eos_token = cJSON_GetObjectItemCaseSensitive(header, "eos_token"),
        .variables = vars,
        .add_generation_prompt = json_bool(row, "add_generation_prompt", false),
        .continue_field = json_bool(row, "continue_final_message", false) ? "content" : NULL,
    };
    struct buf out = BUF_INIT;
    struct err e = ERR_INIT;
    int rc = chat_render(t, &in, &limits, &out, &e);
    const char *want = json_str(row, "rendered", NULL), *error = json_str(row, "error", "");
    const char *got = rc ? e.msg : out.p ? out.p : "";
    if (want) {
        tally->rendered++;
        if (rc || strcmp(got, want) != 0)
            complain(tally, header, row, got, want);
    } else if (!strcmp(json_str(row, "error_type", ""), "raise_exception")) {
        tally->raised++;
        if (!rc || strcmp(got, error) != 0)
            complain(tally, header, row, got, error);
    } else {
        tally->errors++;
        if (!rc)
            complain(tally, header, row, got, error);
        else if (getenv("SHOW_ERRORS") && strcmp(got, error) != 0)
            fprintf(stderr, "error text: %s\n   python's: %s\n", got, error);
    }
    buf_free(&out);
    cJSON_Delete(vars);
}

static void check_file(struct tally *tally, const char *name, const cJSON *conversations)
{
    struct err e = ERR_INIT;
    size_t n_src, n;
    CLEANUP(cleanup_free) char *jinja = path("templates/*.jinja", name);
    CLEANUP(cleanup_free) char *rows = path("*.jsonl", name);
    CLEANUP(cleanup_free) char *src = file_read(jinja, 1 << 20, &n_src, &e);
    CLEANUP(cleanup_free) char *text = file_read(rows, 4 << 20, &n, &e);
    assert_non_null(src);
    assert_non_null(text);
    struct template *t = template_compile(src, n_src, &e);
    if (!t)
        fail_msg("%s: %s", name, e.msg);
    cJSON *header = NULL;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        cJSON *j = json_parse(line, strlen(line), &e);
        assert_non_null(j);
        template_keep_numbers(j, line, strlen(line));
        if (!header) {
            header = j;
            continue;
        }
        check_row(tally, t, header, j, conversations);
        cJSON_Delete(j);
    }
    cJSON_Delete(header);
    template_free(t);
}

static void every_render(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct tally tally = {0};
    size_t n;
    CLEANUP(cleanup_free) char *file = path("conversations.json", "");
    CLEANUP(cleanup_free) char *dir = path("templates", "");
    CLEANUP(cleanup_free) char *text = file_read(file, 4 << 20, &n, &e);
    DIR *d = opendir(dir);
    if (!text || !d) {
        printf("skipped: 5900 cases (no %s)\n", dir);
        if (d)
            closedir(d);
        return;
    }
    cJSON *conversations = json_parse(text, n, &e);
    assert_non_null(conversations);
    template_keep_numbers(conversations, text, n);
    for (struct dirent *f; (f = readdir(d));) {
        char *dot = strstr(f->d_name, ".jinja");
        if (!dot)
            continue;
        *dot = 0;
        check_file(&tally, f->d_name, conversations);
    }
    closedir(d);
    cJSON_Delete(conversations);
    printf("%d texts, %d messages of raise_exception, %d other errors; %d wrong\n", tally.rendered,
           tally.raised, tally.errors, tally.bad);
    assert_int_equal(tally.bad, 0);
    assert_true(tally.rendered > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_render)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
