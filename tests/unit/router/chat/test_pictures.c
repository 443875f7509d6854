/* Images in messages: which parts they are, what templates see of them, and their order. */
#include "common/json/json.h"
#include "router/chat/convert.h"
#include "router/chat/pictures.h"
#include "tests/unit/test.h"
#include <string.h>

#define TWO                                                                                        \
    "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"                         \
    "{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:1\"}},"                                 \
    "{\"type\":\"text\",\"text\":\"b\"}]},{\"role\":\"tool\",\"content\":"                         \
    "[{\"type\":\"image_url\",\"image_url\":\"data:2\",\"where\":\"there\"}]},"                    \
    "{\"role\":\"assistant\",\"content\":\"fine\"}]"

static cJSON *parsed(const char *text)
{
    struct err e = ERR_INIT;
    cJSON *j = json_parse(text, strlen(text), &e);
    assert_non_null(j);
    return j;
}

TEST(they_are_collected_in_order)
{
    cJSON *messages = parsed(TWO);
    struct ask q = {0};
    struct arena a;
    struct err e = ERR_INIT;
    arena_init(&a, 1 << 20);
    assert_int_equal(pictures_count(messages), 2);
    assert_int_equal(pictures_collect(messages, &a, &q, &e), 0);
    assert_int_equal(q.n_images, 2);
    assert_string_equal(q.images[0].url, "data:1");
    assert_null(q.images[0].where);
    assert_string_equal(q.images[1].url, "data:2");
    assert_int_equal(q.images[1].n_url, 6);
    assert_string_equal(q.images[1].where, "there");
    arena_reset(&a);
    cJSON_Delete(messages);
}

static void assert_content(const cJSON *m, const char *expected)
{
    char *text = cJSON_PrintUnformatted(json_get(m, "content"));
    assert_string_equal(text, expected);
    cJSON_free(text);
}

TEST(templates_see_parts_or_text)
{
    cJSON *messages = parsed(TWO), *m = messages->child, *last = m->next->next;
    assert_true(pictures_in(m));
    assert_false(pictures_in(last));
    assert_true(pictures_as_parts(m));
    assert_content(m, "[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"image\"},"
                      "{\"type\":\"text\",\"text\":\"b\"}]");
    assert_true(pictures_as_text(m->next, "<v><i></v>", NULL));
    assert_content(m->next, "\"<v><i></v>\"");
    assert_true(pictures_as_parts(last));
    assert_content(last, "[{\"type\":\"text\",\"text\":\"fine\"}]");
    cJSON_Delete(messages);
}

TEST(videos_stand_among_images)
{
    static const char one[] = "[{\"role\":\"user\",\"content\":["
                              "{\"type\":\"video_url\",\"video_url\":{\"url\":\"data:1\"}},"
                              "{\"type\":\"image_url\",\"image_url\":\"data:2\"},"
                              "{\"type\":\"video_url\",\"video_url\":\"data:3\",\"fps\":4}]}]";
    cJSON *messages = parsed(one), *again = parsed(one);
    struct ask q = {0};
    struct arena a;
    struct err e = ERR_INIT;
    arena_init(&a, 1 << 20);
    assert_true(pictures_have_videos(messages));
    assert_int_equal(pictures_collect(messages, &a, &q, &e), 0);
    assert_int_equal(q.n_images, 3);
    assert_true(q.images[0].video && !q.images[1].video && q.images[2].video);
    assert_string_equal(q.images[0].url, "data:1");
    assert_true(q.images[0].fps == 2 && q.images[2].fps == 4);
    assert_true(pictures_as_parts(messages->child));
    assert_content(messages->child,
                   "[{\"type\":\"video\"},{\"type\":\"image\"},{\"type\":\"video\"}]");
    assert_true(pictures_as_text(again->child, "<i>", "<v>"));
    assert_content(again->child, "\"<v><i><v>\"");
    arena_reset(&a);
    cJSON_Delete(messages);
    cJSON_Delete(again);
    messages = parsed(TWO);
    assert_false(pictures_have_videos(messages));
    cJSON_Delete(messages);
}

static const char *checked(const char *part, const char *role, bool takes_images)
{
    cJSON *p = parsed(part);
    const char *wrong = picture_check(p, role, takes_images);
    cJSON_Delete(p);
    return wrong;
}

TEST(what_is_wrong_with_a_part_is_said)
{
    static const char part[] = "{\"type\":\"image_url\",\"image_url\":{\"url\":\"x\"}}";
    assert_null(checked(part, "user", true));
    assert_null(checked(part, "tool", true));
    assert_null(checked("{\"type\":\"text\"}", "system", false));
#define VIDEO(rest) "{\"type\":\"video_url\",\"video_url\":{\"url\":\"x\"}" rest "}"
    assert_null(checked(VIDEO(",\"fps\":0.5"), "user", true));
    assert_string_equal(checked(VIDEO(""), "user", false),
                        "image inputs are not supported by this model");
    assert_string_equal(checked(VIDEO(",\"fps\":0"), "user", true),
                        "`fps` of a video must be a number from 0.001 to 1000");
    assert_string_equal(checked(VIDEO(",\"fps\":\"2\""), "user", true),
                        "`fps` of a video must be a number from 0.001 to 1000");
    assert_string_equal(checked("{\"type\":\"video_url\",\"image_url\":\"x\"}", "user", true),
                        "missing field `url` of `video_url`");
    assert_non_null(checked(part, "user", false));
    assert_non_null(checked(part, "assistant", true));
    assert_non_null(checked("{\"type\":\"image_url\"}", "user", true));
    assert_non_null(checked("{\"type\":\"image_url\",\"image_url\":{\"url\":1}}", "user", true));
}

TEST(text_and_images_are_put_together)
{
    struct convert_content c = {0};
    cJSON *m = cJSON_CreateObject(), *plain = cJSON_CreateObject();
    assert_true(convert_empty(&c));
    buf_str(&c.text, "only words");
    assert_true(convert_put(&c, plain));
    assert_content(plain, "\"only words\"");
    assert_true(convert_empty(&c));
    convert_picture(&c, picture_part_base64("image/png", "AAAA", "there"));
    buf_str(&c.text, "between");
    convert_picture(&c, picture_part("https://x", NULL));
    assert_true(convert_put(&c, m));
    assert_content(
        m, "[{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,AAAA\"},"
           "\"where\":\"there\"},{\"type\":\"text\",\"text\":\"between\"},"
           "{\"type\":\"image_url\",\"image_url\":{\"url\":\"https://x\"}}]");
    convert_picture(&c, NULL); /* no memory for it */
    cJSON_Delete(m);
    m = cJSON_CreateObject();
    assert_false(convert_put(&c, m));
    cJSON_Delete(m);
    cJSON_Delete(plain);
}

int main(void) { return tests_run(NULL, NULL); }
