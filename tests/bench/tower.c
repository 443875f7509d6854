/* tower.c - a vision tower with random weights on the CPU: SigLIP so400m/14 at 896 x 896, which is
 * Gemma 3's; patches a second, and the operations a second that these come to.
 *
 *   tower [threads] [runs] [exact|half]     default: all allowed cores, 3, exact */
#include "model-server/encoder/tower.h"
#include "model-server/encoder/family.h"
#include "model-server/model/decoder.h"
#include "tests/bench/timing.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIDE = 896, WIDTH = 2560 };

static const char config[] =
    "{\"model_type\":\"gemma3\",\"mm_tokens_per_image\":256,\"text_config\":{\"hidden_size\":2560},"
    "\"vision_config\":{\"hidden_size\":1152,\"image_size\":896,\"intermediate_size\":4304,"
    "\"model_type\":\"siglip_vision_model\",\"num_attention_heads\":16,\"num_hidden_layers\":27,"
    "\"patch_size\":14}}";

/* Multiplications and additions of a picture of n patches: products, then attention's. */
static double operations(const struct encoder_spec *s, double n)
{
    const double h = s->blocks.hidden, layers = s->blocks.n_layers;
    const double weights = layers * (4 * h * h + 2 * h * s->blocks.ffn);
    return 2 * n * weights + layers * 4 * n * n * h;
}

static struct tower *open_tower(const struct decoder *text, struct encoder_spec *spec)
{
    char path[] = "/tmp/tower-XXXXXX";
    struct err e = ERR_INIT;
    const struct encoder_family *family;
    const int fd = mkstemp(path);
    if (fd < 0 || write(fd, config, sizeof(config) - 1) != (ssize_t)sizeof(config) - 1) {
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
    struct tower *t = open_tower(&text, &spec);
    const struct vision_plan plan = {
        .crops = {{0}}, .n_crops = 1, .crop_width = SIDE, .crop_height = SIDE, .n_features = 256};
    float *pixels = numbers(text.dev, (size_t)3 * SIDE * SIDE);
    float *out = malloc((size_t)plan.n_features * WIDTH * sizeof(*out));
    const struct tower_image image = {
        .plan = &plan, .pixels = pixels, .layout = VISION_PLANES, .out = out};
    const uint32_t n = tower_tokens(t, &plan);
    const double s = BEST(runs, if (tower_encode(t, &image, 1, &e)) die(&e));
    printf("%s\n", backend_cpu.describe(text.dev));
    printf("SigLIP so400m/14 at %d: %u patches in %.0f ms, %.2f patches/ms, %.0f Gop/s\n", SIDE, n,
           s * 1e3, n / s * 1e-3, operations(&spec, n) / s * 1e-9);
    tower_free(t);
    free(out);
    backend_cpu.free(text.dev, pixels);
    backend_cpu.close(text.dev);
    return 0;
}
