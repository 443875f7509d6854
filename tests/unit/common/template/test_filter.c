/* The filter program: JSON lines in, JSON lines out. */
#include "common/template/filter.h"
#include "tests/unit/test.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *filter(const char *src, const char *lines, int *rc, struct err *e)
{
    char path[] = "/tmp/template-XXXXXX", *text = NULL;
    size_t n = 0;
    int fd = mkstemp(path);
    assert_int_equal(write(fd, src, strlen(src)), (ssize_t)strlen(src));
    close(fd);
    FILE *in = fmemopen((char *)lines, strlen(lines), "r"), *out = open_memstream(&text, &n);
    *rc = template_filter(path, in, out, e);
    fclose(in);
    fclose(out);
    unlink(path);
    return text;
}

TEST(one_line_in_one_out)
{
    int rc;
    struct err e = ERR_INIT;
    char *text = filter(
        "{{ bos_token }}{% for m in messages %}[{{ m.content|tojson }}]{% endfor %}{{ x }}"
        "{{ strftime_now('%Y') }}{% if add_generation_prompt %}>{% endif %}{{ messages[0].y.z }}",
        "{\"messages\":[{\"content\":2.0,\"y\":{\"z\":1e2}}],\"bos_token\":\"<s>\",\"variables\":{"
        "\"x\":"
        "7},\"now\":\"2025-01-15T12:34:56\",\"add_generation_prompt\":true}\n"
        "\n"
        "{\"messages\":[{\"content\":\"a\"}]}\n"
        "{\"messages\":[{\"content\":\"a\\u0000b\",\"y\":{}}],\"variables\":{\"x\":\"c\\u0000d\"},"
        "\"now\":\"2025-01-15 12:34:56\"}\n"
        "not json\n"
        "{\"messages\":5}",
        &rc, &e);
    assert_int_equal(rc, 0);
    assert_string_equal(text, "{\"text\":\"<s>[2.0]72025>100.0\"}\n"
                              "{\"error\":\"'dict object' has no attribute 'y'\"}\n"
                              "{\"text\":\"[\\\"a\\\\u0000b\\\"]c\\u0000d2025\"}\n"
                              "{\"error\":\"expected value at line 1 column 1\"}\n"
                              "{\"error\":\"messages must be an array\"}\n");
    free(text);
}

TEST(the_last_message_can_stay_open)
{
    int rc;
    struct err e = ERR_INIT;
    char *text = filter("{% for m in messages %}<{{ m.r }}{{ m.content }}>{% endfor %}",
                        "{\"messages\":[{\"content\":\"a\"}],\"continue_final_message\":true}\n"
                        "{\"messages\":[{\"r\":\"b\"}],\"continue_final_message\":\"r\"}\n",
                        &rc, &e);
    assert_int_equal(rc, 0);
    assert_string_equal(text, "{\"text\":\"<a\"}\n{\"text\":\"<b\"}\n");
    free(text);
}

TEST(a_broken_template_stops_it)
{
    int rc;
    struct err e = ERR_INIT;
    char *text = filter("{% if %}", "{}\n", &rc, &e);
    assert_int_equal(rc, -1);
    assert_non_null(strstr(e.msg, "syntax error: Expected an expression"));
    assert_string_equal(text, "");
    free(text);
    FILE *none = tmpfile();
    assert_int_equal(template_filter("/nonexistent", none, none, &e), -1);
    fclose(none);
}

int main(void) { return tests_run(NULL, NULL); }
