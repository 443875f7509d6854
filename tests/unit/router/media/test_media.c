/* Images of a prompt: found in its text, read within limits, and placed among its ids. */
#include "router/media/media.h"
#include "tests/image_made.h"
#include "tests/vision_folder.h"

/* Qwen2.5-VL: a token for 28 x 28 pixels, and at least 4. */
enum { IMAGE_TOKEN = 151655, TEXT_TOKEN = 7, MOST_TOKENS = 100 };
#define PAD          "<|image_pad|>"
#define AROUND(pads) "<|vision_start|>" pads "<|vision_end|>"
#define PADS_4       PAD PAD PAD PAD
#define PADS_8       PADS_4 PADS_4

struct rig {
    struct vision *vision;
    struct image_decoder *decoder;
    struct media_rules rules;
    struct media media;
    struct arena arena;
    struct media_prompt out;
    struct medium *read; /* what the call has read */
    struct err e;
};

static void rig_init_as(struct rig *g, const char *config)
{
    static const struct image_decoder_options o = {.limits = {16384, 50000000},
                                                   .timeout_ms = 60000};
    struct vision_folder d;
    *g = (struct rig){.rules = {.max_images = 3, .max_pixels = 20000}};
    vision_folder_make(&d);
    vision_write(&d, "config.json", config);
    assert_int_equal(vision_load(d.path, NULL, &g->vision, &g->e), 0);
    vision_folder_remove(&d);
    assert_non_null(g->vision);
    assert_non_null(g->decoder = image_decoder_new(&o, &g->e));
    g->media = (struct media){
        .vision = g->vision, .decoder = g->decoder, .rules = &g->rules, .max_tokens = MOST_TOKENS};
    arena_init(&g->arena, 1 << 20);
}

static void rig_init(struct rig *g)
{
    rig_init_as(g, "{\"model_type\": \"qwen2_5_vl\", \"image_token_id\": 151655,"
                   " \"vision_config\": {\"model_type\": \"qwen2_5_vl\"}}");
    assert_int_equal(vision_token(g->vision), IMAGE_TOKEN);
}

static void rig_free(struct rig *g)
{
    arena_reset(&g->arena);
    image_decoder_free(g->decoder);
    vision_free(g->vision);
}

/* The data: URL of a grey PNG; the caller's. */
static char *url_of(uint32_t width, uint32_t height, uint8_t value)
{
    struct buf file = BUF_INIT, url = BUF_INIT;
    const struct made_png m = {.width = width, .height = height, .colour = 0, .depth = 8};
    uint8_t *rows = malloc((size_t)width * height);
    memset(rows, value, (size_t)width * height);
    made_png(&file, &m, rows);
    free(rows);
    buf_str(&url, "data:image/png;base64,");
    buf_base64(&url, file.p, file.len);
    buf_free(&file);
    char *s = buf_take(&url);
    assert_non_null(s);
    return s;
}

/* `text` with the small image (4 tokens) for each S in braces and the wide one (8) for each W. */
static char *with_urls(const char *text)
{
    char *small = url_of(56, 56, 90), *wide = url_of(112, 56, 120);
    struct buf out = BUF_INIT;
    for (; *text; text++) {
        if (!strncmp(text, "{S}", 3) || !strncmp(text, "{W}", 3)) {
            buf_str(&out, text[1] == 'S' ? small : wide);
            text += 2;
        } else
            buf_ch(&out, *text);
    }
    free(small), free(wide);
    char *s = buf_take(&out);
    assert_non_null(s);
    return s;
}

static int ask_inline(struct rig *g, const char *inputs)
{
    const struct ask q = {.style = ASK_TGI,
                          .inputs = inputs,
                          .n_inputs = strlen(inputs),
                          .inline_images = true,
                          .read = &g->read};
    g->e = (struct err)ERR_INIT;
    g->read = NULL;
    return media_prompt(&g->media, &q, &g->arena, &g->out, &g->e);
}

static int ask_beside(struct rig *g, const char *inputs, const char *const *urls, uint32_t n)
{
    struct ask_image image[8] = {0};
    for (uint32_t i = 0; i < n; i++)
        image[i] = (struct ask_image){.url = urls[i], .n_url = strlen(urls[i])};
    const struct ask q = {.style = ASK_OPENAI,
                          .inputs = inputs,
                          .n_inputs = strlen(inputs),
                          .images = image,
                          .n_images = n,
                          .read = &g->read};
    g->e = (struct err)ERR_INIT;
    g->read = NULL;
    return media_prompt(&g->media, &q, &g->arena, &g->out, &g->e);
}

static void expect_text(const struct rig *g, const char *want)
{
    assert_int_equal(g->out.n, strlen(want));
    assert_memory_equal(g->out.text, want, g->out.n);
}

static void expect_refused(const struct rig *g, int rc, const char *words)
{
    assert_int_equal(rc, -1);
    if (!strstr(g->e.msg, words))
        fail_msg("%s", g->e.msg);
    assert_null(strchr(g->e.msg, '\n'));
}

/* ---------------------------------------------------------------- in a text */

TEST(images_take_the_place_of_their_marks)
{
    struct rig g;
    char *text = with_urls("![]({S})What![]({W})![]( is this![");
    rig_init(&g);
    assert_int_equal(ask_inline(&g, text), 0);
    expect_text(&g, AROUND(PADS_4) "What" AROUND(PADS_8) "![]( is this![");
    assert_int_equal(g.out.n_media, 2);
    assert_int_equal(g.out.v[0]->plan.n_features, 4);
    assert_int_equal(g.out.v[1]->plan.n_features, 8);
    assert_true(g.out.v[0]->digest != g.out.v[1]->digest);
    assert_string_equal(g.out.v[0]->type, "image/png");
    free(text);
    rig_free(&g);
}

TEST(images_are_numbered_in_their_order)
{
    struct rig g;
    char *text = with_urls("![]({S})![]({W})");
    rig_init_as(&g, "{\"model_type\": \"minicpmv4_6\", \"vision_config\": {\"patch_size\": 14}}");
    g.media.max_tokens = 1000;
    assert_int_equal(ask_inline(&g, text), 0);
    const char *first = strstr(g.out.text, "<image_id>0</image_id><image>" PAD);
    const char *second = strstr(g.out.text, "<image_id>1</image_id><image>" PAD);
    assert_ptr_equal(first, g.out.text);
    assert_non_null(second);
    assert_null(strstr(second + 1, "<image_id>"));
    free(text);
    rig_free(&g);
}

TEST(a_text_without_images_stays_as_it_is)
{
    static const char *const texts[] = {"", "![", "![](", "![](no end", "! [](x)", PAD};
    struct rig g;
    rig_init(&g);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_int_equal(ask_inline(&g, texts[i]), 0);
        assert_ptr_equal(g.out.text, texts[i]);
        assert_int_equal(g.out.n_media, 0);
    }
    /* a model without a tower: its text may say ![](x) */
    g.media.vision = NULL;
    assert_int_equal(ask_inline(&g, "![](x)"), 0);
    expect_text(&g, "![](x)");
    expect_refused(&g, ask_beside(&g, PAD, (const char *const[]){"data:"}, 1),
                   "image inputs are not supported by this model");
    rig_free(&g);
}

TEST(counts_that_disagree_are_refused)
{
    struct rig g;
    char *small = url_of(56, 56, 90);
    const char *const urls[] = {small, small};
    rig_init(&g);
    assert_int_equal(ask_beside(&g, "a" AROUND(PAD) "b" AROUND(PAD), urls, 2), 0);
    expect_text(&g, "a" AROUND(PADS_4) "b" AROUND(PADS_4));
    assert_int_equal(g.out.v[0]->digest, g.out.v[1]->digest);
    expect_refused(&g, ask_beside(&g, PAD, urls, 2),
                   "the prompt has 1 placeholders of images, and 2 images were given");
    expect_refused(&g, ask_beside(&g, "none", urls, 1),
                   "the prompt has 0 placeholders of images, and 1 images were given");
    expect_refused(&g, ask_beside(&g, PAD PAD, urls, 1),
                   "the prompt has 2 placeholders of images, and 1 images were given");
    /* without images a placeholder is a text */
    assert_int_equal(ask_beside(&g, PAD, NULL, 0), 0);
    expect_text(&g, PAD);
    free(small);
    rig_free(&g);
}

TEST(what_was_read_is_not_read_again)
{
    struct rig g;
    char *small = url_of(56, 56, 90);
    const struct ask_image image[] = {{.url = small, .n_url = strlen(small)},
                                      {.url = small, .n_url = strlen(small)}};
    rig_init(&g);
    const struct ask q = {.style = ASK_OPENAI,
                          .inputs = PAD PAD,
                          .n_inputs = strlen(PAD PAD),
                          .images = image,
                          .n_images = 2,
                          .read = &g.read};
    assert_int_equal(media_prompt(&g.media, &q, &g.arena, &g.out, &g.e), 0);
    const struct medium *first = g.out.v[0];
    assert_ptr_equal(g.out.v[1], first);
    assert_int_equal(media_prompt(&g.media, &q, &g.arena, &g.out, &g.e), 0);
    assert_ptr_equal(g.out.v[0], first);
    assert_null(g.read->next);
    free(small);
    rig_free(&g);
}

/* ---------------------------------------------------------------- limits */

TEST(a_request_has_so_many_images)
{
    struct rig g;
    char *three = with_urls("![]({S})![]({S})![]({S})");
    char *four = with_urls("![]({S})![]({S})![]({S})![]({S})");
    rig_init(&g);
    assert_int_equal(ask_inline(&g, three), 0);
    expect_refused(&g, ask_inline(&g, four), "at most 3 images. Given: 4");
    /* counted before anything is read */
    expect_refused(&g, ask_inline(&g, "![](a)![](b)![](c)![](d)"), "at most 3 images. Given: 4");
    free(three), free(four);
    rig_free(&g);
}

TEST(pixels_are_counted_together)
{
    struct rig g;
    char *both = with_urls("![]({S})![]({W})"); /* 3136 + 6272 */
    rig_init(&g);
    g.rules.max_pixels = 3136 + 6272;
    assert_int_equal(ask_inline(&g, both), 0);
    g.rules.max_pixels--;
    expect_refused(&g, ask_inline(&g, both), "at most 9407 pixels together");
    g.rules.max_pixels = 0;
    expect_refused(&g, ask_inline(&g, both), "at most 0 pixels together");
    free(both);
    rig_free(&g);
}

TEST(tokens_are_counted_together)
{
    struct rig g;
    char *both = with_urls("![]({S})![]({W})");
    rig_init(&g);
    g.media.max_tokens = 12;
    assert_int_equal(ask_inline(&g, both), 0);
    g.media.max_tokens = 11;
    expect_refused(&g, ask_inline(&g, both), "at most 11 tokens. Given: 12");
    g.media.max_tokens = MOST_TOKENS;
    g.media.max_whole = 8;
    assert_int_equal(ask_inline(&g, both), 0);
    g.media.max_whole = 7;
    expect_refused(&g, ask_inline(&g, both), "an image of 8 tokens does not fit into a step of 7");
    free(both);
    rig_free(&g);
}

TEST(what_is_no_image_is_refused_in_the_protocols_words)
{
    static const char *const none[] = {"data:image/png;base64,AAAA"};
    struct rig g;
    rig_init(&g);
    expect_refused(&g, ask_inline(&g, "![](cat.png)"), "invalid image content: cat.png");
    expect_refused(&g, ask_inline(&g, "![]()"), "invalid image content: ");
    expect_refused(&g, ask_inline(&g, "![](data:image/png;base64,@@@@)"),
                   "base64 encoding is invalid");
    expect_refused(&g, ask_inline(&g, "![](http://127.0.0.1/a)"), "fetches no images");
    expect_refused(&g, ask_beside(&g, PAD, none, 1), "You uploaded an unsupported image");
    assert_int_equal(g.e.kind, ERR_IMAGE);
    rig_free(&g);
}

/* ---------------------------------------------------------------- among the ids */

static uint32_t fill(uint32_t *ids, uint32_t at, uint32_t token, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        ids[at + i] = token;
    return at + n;
}

TEST(images_stand_where_their_tokens_are)
{
    struct rig g;
    struct gen_request r = {0};
    uint32_t ids[40], n = 0;
    char *both = with_urls("![]({S})![]({W})");
    rig_init(&g);
    assert_int_equal(ask_inline(&g, both), 0);
    n = fill(ids, n, TEXT_TOKEN, 2);
    n = fill(ids, n, IMAGE_TOKEN, 2); /* other tokens may stand between those of an image */
    n = fill(ids, n, TEXT_TOKEN, 1);
    n = fill(ids, n, IMAGE_TOKEN, 2 + 8); /* and the next one may follow at once */
    n = fill(ids, n, TEXT_TOKEN, 3);
    assert_int_equal(media_places(&g.media, &g.out, ids, n, &g.arena, &r, &g.e), 0);
    assert_int_equal(r.n_media, 2);
    assert_int_equal(r.media[0].first, 2);
    assert_int_equal(r.media[0].n, 5);
    assert_int_equal(r.media[1].first, 7);
    assert_int_equal(r.media[1].n, 8);
    assert_int_equal(r.media[0].digest, g.out.v[0]->digest);
    assert_string_equal(r.media[0].type, "image/png");
    assert_false(r.whole_media);
    free(both);
    rig_free(&g);
}

/* PaliGemma: <bos> behind the last image, a newline at the end, and no other special tokens. */
TEST(a_prefix_is_framed_and_stays_whole)
{
    struct rig g;
    struct gen_request r = {0};
    uint32_t ids[40], n = 0;
    char *both = with_urls("![]({S})a![]({W}) caption en");
    rig_init_as(&g, "{\"model_type\": \"paligemma\", \"image_token_index\": 3,"
                    " \"vision_config\": {\"image_size\": 28}}");
    assert_int_equal(ask_inline(&g, both), 0);
#define SOFT "<image><image><image><image>"
    expect_text(&g, SOFT "a" SOFT "<bos> caption en\n");
    assert_true(g.out.bare);
    n = fill(ids, n, 3, 4);
    n = fill(ids, n, TEXT_TOKEN, 1);
    n = fill(ids, n, 3, 4);
    n = fill(ids, n, TEXT_TOKEN, 5);
    g.media.max_whole = n;
    assert_int_equal(media_places(&g.media, &g.out, ids, n, &g.arena, &r, &g.e), 0);
    assert_true(r.whole_media && r.whole_prompt);
    g.media.max_whole = n - 1;
    expect_refused(&g, media_places(&g.media, &g.out, ids, n, &g.arena, &r, &g.e),
                   "a prompt of 14 tokens with images does not fit into a step of 13");
    assert_int_equal(ask_inline(&g, "caption en"), 0); /* a text is no prefix */
    expect_text(&g, "caption en");
    assert_false(g.out.bare);
    free(both);
    rig_free(&g);
}

TEST(a_placeholder_that_the_client_wrote_is_refused)
{
    struct rig g;
    struct gen_request r = {0};
    uint32_t ids[40], n = 0;
    char *text = with_urls("![]({S})" PAD);
    rig_init(&g);
    assert_int_equal(ask_inline(&g, text), 0);
    expect_text(&g, AROUND(PADS_4) PAD);
    n = fill(ids, n, IMAGE_TOKEN, 5);
    expect_refused(&g, media_places(&g.media, &g.out, ids, n, &g.arena, &r, &g.e),
                   "5 placeholders of images where its images need 4");
    expect_refused(&g, media_places(&g.media, &g.out, ids, 3, &g.arena, &r, &g.e),
                   "3 placeholders of images where its images need 4");
    expect_refused(&g, media_places(&g.media, &g.out, ids, 0, &g.arena, &r, &g.e),
                   "0 placeholders of images where its images need 4");
    assert_int_equal(r.n_media, 0);
    free(text);
    rig_free(&g);
}

int main(int argc, char **argv)
{
    image_decoder_main(argc, argv);
    return tests_run(NULL, NULL);
}
