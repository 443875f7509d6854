/* Videos of a prompt: from data URLs to frames, text and places among its ids. */
#include "common/image/reel.h"
#include "router/media/media.h"
#include "tests/image_made.h"
#include "tests/vision_folder.h"

/* Qwen3-VL's small: a token for 32 x 32 pixels of two frames. */
enum { IMAGE_TOKEN = 151655, VIDEO_TOKEN = 151656, TEXT_TOKEN = 7 };
#define MARKED      "<|vision_start|><|video_pad|><|vision_end|>"
#define IMAGE       "<|vision_start|><|image_pad|><|vision_end|>"
#define FRAME(when) "<" when " seconds>" MARKED

struct rig {
    struct vision *vision;
    struct image_decoder *decoder;
    struct media_rules rules;
    struct media media;
    struct arena arena;
    struct media_prompt out;
    struct err e;
};

static void rig_init(struct rig *g, const char *type)
{
    static const struct image_decoder_options o = {.limits = {16384, 50000000},
                                                   .timeout_ms = 60000};
    struct vision_folder d;
    char config[256];
    *g = (struct rig){.rules = {.max_images = 3, .max_pixels = 20000}};
    snprintf(config, sizeof(config),
             "{\"model_type\": \"%s\", \"video_token_id\": 151656, \"vision_config\": {}}", type);
    vision_folder_make(&d);
    vision_write(&d, "config.json", config);
    vision_write(&d, "preprocessor_config.json",
                 "{\"size\": {\"shortest_edge\": 1024, \"longest_edge\": 4096}}");
    assert_int_equal(vision_load(d.path, NULL, &g->vision, &g->e), 0);
    vision_folder_remove(&d);
    assert_non_null(g->decoder = image_decoder_new(&o, &g->e));
    g->media = (struct media){
        .vision = g->vision, .decoder = g->decoder, .rules = &g->rules, .max_tokens = 100};
    arena_init(&g->arena, 1 << 20);
}

static void rig_free(struct rig *g)
{
    arena_reset(&g->arena);
    image_decoder_free(g->decoder);
    vision_free(g->vision);
}

/* `head`, then PNGs of these greys with commas between them. */
static char *url_of(const char *head, uint32_t width, const char *greys)
{
    struct buf url = BUF_INIT;
    buf_str(&url, head);
    for (const char *c = greys; *c; c++) {
        struct buf file = BUF_INIT;
        uint8_t rows[64 * 32];
        memset(rows, *c, sizeof(rows));
        made_png(&file, &(struct made_png){.width = width, .height = 32, .colour = 0, .depth = 8},
                 rows);
        buf_str(&url, c > greys ? "," : "");
        buf_base64(&url, file.p, file.len);
        buf_free(&file);
    }
    return buf_take(&url);
}
#define VIDEO "data:video/jpeg;base64,"

struct given {
    const char *url;
    double fps; /* 0: an image */
};

static int ask(struct rig *g, const char *inputs, const struct given *v, uint32_t n)
{
    struct ask_image image[4] = {0};
    for (uint32_t i = 0; i < n; i++)
        image[i] = (struct ask_image){
            .url = v[i].url, .n_url = strlen(v[i].url), .video = v[i].fps > 0, .fps = v[i].fps};
    const struct ask q = {.style = ASK_OPENAI,
                          .inputs = inputs,
                          .n_inputs = strlen(inputs),
                          .images = image,
                          .n_images = n};
    g->e = (struct err)ERR_INIT;
    return media_prompt(&g->media, &q, &g->arena, &g->out, &g->e);
}

static void expect_refused(const struct rig *g, int rc, const char *words)
{
    assert_int_equal(rc, -1);
    if (!strstr(g->e.msg, words))
        fail_msg("%s", g->e.msg);
}

TEST(videos_and_images_have_their_places)
{
    struct rig g;
    char *film = url_of(VIDEO, 32, "abc"), *photo = url_of("data:image/png;base64,", 32, "a");
    const struct given v[] = {{photo, 0}, {film, 4}};
    const uint32_t ids[] = {TEXT_TOKEN,  IMAGE_TOKEN, TEXT_TOKEN,  TEXT_TOKEN,
                            VIDEO_TOKEN, TEXT_TOKEN,  VIDEO_TOKEN, TEXT_TOKEN};
    const uint32_t swapped[] = {VIDEO_TOKEN, VIDEO_TOKEN, IMAGE_TOKEN};
    struct gen_request r = {0};
    rig_init(&g, "qwen3_vl");
    assert_int_equal(ask(&g, "a" IMAGE "b" MARKED "c", v, 2), 0);
    assert_int_equal(g.out.n, strlen("a" IMAGE "b" FRAME("0.1") FRAME("0.5") "c"));
    assert_memory_equal(g.out.text, "a" IMAGE "b" FRAME("0.1") FRAME("0.5") "c", g.out.n);
    assert_string_equal(g.out.v[1]->type, REEL_MIME);
    assert_int_equal(media_places(&g.media, &g.out, ids, 8, &g.arena, &r, &g.e), 0);
    assert_int_equal(r.n_media, 2);
    assert_true(r.media[0].first == 1 && r.media[0].n == 1);
    assert_true(r.media[1].first == 4 && r.media[1].n == 3); /* text stands between frames */
    expect_refused(&g, media_places(&g.media, &g.out, swapped, 3, &g.arena, &r, &g.e),
                   "a placeholder of another kind than image 0");
    expect_refused(&g, ask(&g, MARKED IMAGE, v, 2), "the placeholder of a video where an image");
    free(film), free(photo);
    rig_free(&g);
}

/* Frames are the same, and keys and values are not. */
TEST(the_rate_belongs_to_the_digest)
{
    struct rig g;
    char *film = url_of(VIDEO, 32, "ab");
    uint64_t digest;
    rig_init(&g, "qwen3_vl");
    assert_int_equal(ask(&g, MARKED, &(struct given){film, 2}, 1), 0);
    digest = g.out.v[0]->digest;
    assert_int_equal(ask(&g, MARKED, &(struct given){film, 2}, 1), 0);
    assert_true(g.out.v[0]->digest == digest);
    assert_int_equal(ask(&g, MARKED, &(struct given){film, 1}, 1), 0);
    assert_true(g.out.v[0]->digest != digest);
    free(film);
    rig_free(&g);
}

TEST(what_is_no_video)
{
    struct rig g;
    char *one = url_of(VIDEO, 32, "a"), *two = url_of(VIDEO, 32, "ab"),
         *picture = url_of("data:image/bmp;base64,", 32, "ab"),
         *parameters = url_of("DATA:video/JPEG;x=1;BASE64,", 32, "ab");
    struct buf mixed = BUF_INIT;
    char *wide = url_of(",", 64, "a");
    rig_init(&g, "qwen3_vl");
    buf_fmt(&mixed, "%s%s", one, wide);
    assert_int_equal(ask(&g, MARKED, &(struct given){parameters, 2}, 1), 0);
    static const struct {
        const char *url, *words;
    } others[] = {
        {"data:image/bmp;base64,AAAA",
         "Invalid video: a video is an animated GIF or WebP file, or"},
        {"data:video/mp4;base64,AAAA",
         "Invalid video: a video is an animated GIF or WebP file, or"},
        {"data:video/jpegs;base64,AAAA", "Invalid video: a video is an animated GIF or WebP file"},
        {"data:video/jpeg,AAAA", "Invalid video URL: the URL is not of the form data:MIME;base64"},
        {"https://x.org/a.mp4", "this server fetches no images"},
        {"", "begins with data:, http: or https:"},
    };
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        expect_refused(&g, ask(&g, MARKED, &(struct given){others[i].url, 2}, 1), others[i].words);
    expect_refused(&g, ask(&g, MARKED, &(struct given){picture, 2}, 1), "base64 encoding");
    expect_refused(&g, ask(&g, MARKED, &(struct given){one, 2}, 1), "at least 2 frames. Given: 1");
    expect_refused(&g, ask(&g, MARKED, &(struct given){mixed.p, 2}, 1),
                   "Invalid video: the frames of a video have one size");
    expect_refused(&g, ask(&g, MARKED, &(struct given){VIDEO "AAAA,*", 2}, 1), "frame 1: base64");
    expect_refused(&g, ask(&g, MARKED, &(struct given){VIDEO "AAAA,", 2}, 1), "Invalid video: ");
    g.rules.max_pixels = 2 * 32 * 32 - 1;
    expect_refused(&g, ask(&g, MARKED, &(struct given){two, 2}, 1), "has more than 2047 pixels");
    free(one), free(two), free(picture), free(wide), free(parameters);
    buf_free(&mixed);
    rig_free(&g);
}

int main(int argc, char **argv)
{
    image_decoder_main(argc, argv);
    return tests_run(NULL, NULL);
}
