/* tower.c - a vision tower with random weights on the CPU: SigLIP so400m/14 at 896 x 896, which is
 * Gemma 3's, Qwen3-VL's at 1024 x 1024, or one of convolutions; features a second, and the
 * operations a second that these come to.
 *
 *   tower [threads] [runs] [exact|half] [NAME]     default: all allowed cores, 3, exact, siglip */
#include "model-server/encoder/tower.h"
#include "model-server/encoder/family.h"
#include "model-server/model/decoder.h"
#include "tests/bench/timing.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct kind {
    const char *name;
    uint32_t side, features, width;
    const char *config;
} kinds[] = {
    {"siglip", 896, 256, 2560,
     "{\"model_type\":\"gemma3\",\"mm_tokens_per_image\":256,\"text_config\":{\"hidden_size\":2560}"
     ","
     "\"vision_config\":{\"hidden_size\":1152,\"image_size\":896,\"intermediate_size\":4304,"
     "\"model_type\":\"siglip_vision_model\",\"num_attention_heads\":16,\"num_hidden_layers\":27,"
     "\"patch_size\":14}}"},
    {"qwen3_vl", 1024, 1024, 4 * 4096, /* and three levels */
     "{\"model_type\":\"qwen3_vl\",\"text_config\":{\"hidden_size\":4096},\"vision_config\":{"
     "\"hidden_size\":1152,\"depth\":27,\"num_heads\":16,\"intermediate_size\":4304,"
     "\"patch_size\":16,\"out_hidden_size\":4096,\"num_position_embeddings\":2304,"
     "\"deepstack_visual_indexes\":[8,16,24]}}"},
    {"fast_vlm", 1024, 256, 896,
     "{\"model_type\":\"fast_vlm\",\"text_config\":{\"hidden_size\":896},"
     "\"vision_config\":{\"model_args\":{\"inference_mode\":true}}}"},
    {"got_ocr2", 1024, 256, 1024,
     "{\"model_type\":\"got_ocr2\",\"text_config\":{\"hidden_size\":1024},\"vision_config\":{}}"},
    {"gemma3n", 768, 256, 2048,
     "{\"model_type\":\"gemma3n\",\"text_config\":{\"hidden_size\":2048},\"vision_config\":{}}"},
};
enum { N_KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static struct tower *open_tower(const struct kind *k, const struct decoder *text,
                                struct encoder_spec *spec)
{
    char path[] = "/tmp/tower-XXXXXX";
    struct err e = ERR_INIT;
    const struct encoder_family *family;
    const int fd = mkstemp(path);
    const size_t n = strlen(k->config);
    if (fd < 0 || write(fd, k->config, n) != (ssize_t)n) {
        fprintf(stderr, "cannot write %s\n", path);
        exit(1);
    }
    close(fd);
    struct tower *t = encoder_configure(path, &family, spec, &e)
                          ? NULL
                          : tower_random(spec, &family->names, text, &e);
    unlink(path);
    if (!t)
        die(&e);
    return t;
}

/* Multiplications and additions of a picture: in parts, they are counted. */
static double operations(struct tower *t, const struct tower_image *image, struct err *e)
{
    uint64_t done, all = 0;
    if (tower_begin(t, image, 1, e))
        die(e);
    while (tower_busy(t)) {
        if (tower_go_on(t, TOWER_ALL - 1, &done, e))
            die(e);
        all += done;
    }
    return 2.0 * (double)all;
}

int main(int argc, char **argv)
{
    const int threads = argc > 1 ? atoi(argv[1]) : 0, runs = argc > 2 ? atoi(argv[2]) : 3;
    const bool half = argc > 3 && strcmp(argv[3], "half") == 0;
    struct err e = ERR_INIT;
    struct encoder_spec spec;
    struct decoder text = {.ops = &backend_cpu, .comm = comm_solo(), .dtype = DT_BF16};
    const struct device_options o = {
        .threads = threads, .features = ~0ull, .arith = half ? ARITH_HALF : ARITH_EXACT};
    text.dev = backend_cpu.open(&o, &e);
    if (!text.dev)
        die(&e);
    const struct kind *k = kinds;
    while (argc > 4 && k < kinds + N_KINDS - 1 && strcmp(k->name, argv[4]) != 0)
        k++;
    struct tower *t = open_tower(k, &text, &spec);
    const struct vision_plan plan = {.crops = {{0}},
                                     .n_crops = 1,
                                     .crop_width = k->side,
                                     .crop_height = k->side,
                                     .n_features = k->features};
    float *pixels = numbers(text.dev, (size_t)3 * k->side * k->side);
    float *out = malloc((size_t)k->features * k->width * sizeof(*out));
    const struct tower_image image = {
        .plan = &plan, .pixels = pixels, .layout = VISION_PLANES, .out = out};
    const double all = operations(t, &image, &e);
    const double s = BEST(runs, if (tower_encode(t, &image, 1, &e)) die(&e));
    printf("%s\n", backend_cpu.describe(text.dev));
    printf("%s at %u: %u tokens in %.0f ms, %.0f Gop, %.0f Gop/s, %.0f MB\n", k->name, k->side,
           tower_tokens(t, &plan), s * 1e3, all * 1e-9, all / s * 1e-9,
           (double)tower_reserve_bytes(t, k->features) * 1e-6);
    tower_free(t);
    free(out);
    backend_cpu.free(text.dev, pixels);
    backend_cpu.close(text.dev);
    return 0;
}
