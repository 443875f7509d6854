/* Milliseconds of preprocessing: a picture in memory to the numbers of a vision tower.
 *
 *   pixels FAMILY WIDTH HEIGHT [THREADS]
 *
 * FAMILY is a model_type of common/vision/vision.h; its sizes are the hub's. The picture is noise
 * over a gradient. Prints "pixels <family> <width> <height> <features> <ms>", the best of several
 * runs, and the same without kernels for this CPU as "plain". */
#include "model-server/encoder/pixels.h"
#include "model-server/encoder/resample_kernels.h"
#include "tests/bench/timing.h"
#include <string.h>
#include <unistd.h>

enum { RUNS = 15 };

/* Everything but the family is the family's own. */
static struct vision *load(const char *family)
{
    char dir[] = "/tmp/pixels-XXXXXX", path[64];
    struct err e = ERR_INIT;
    struct vision *v = NULL;
    if (!mkdtemp(dir))
        exit(1);
    snprintf(path, sizeof(path), "%s/config.json", dir);
    FILE *f = fopen(path, "w");
    if (!f)
        exit(1);
    fprintf(f, "{\"model_type\": \"%s\", \"vision_config\": {}}", family);
    fclose(f);
    int rc = vision_load(dir, NULL, &v, &e);
    unlink(path);
    rmdir(dir);
    if (rc)
        die(&e);
    if (!v) {
        fprintf(stderr, "%s is no family of pictures\n", family);
        exit(2);
    }
    return v;
}

static void paint(struct image *p)
{
    uint32_t state = 1;
    for (uint32_t y = 0; y < p->height; y++)
        for (uint32_t x = 0; x < p->width; x++)
            for (uint32_t c = 0; c < 3; c++) {
                state = state * 1664525u + 1013904223u;
                p->rgb[3 * ((size_t)y * p->width + x) + c] =
                    (uint8_t)((x * 128 / p->width + y * 64 / p->height) + (state >> 26));
            }
}

int main(int argc, char **argv)
{
    struct err e = ERR_INIT;
    struct vision_plan plan;
    if (argc < 4) {
        fprintf(stderr, "usage: pixels FAMILY WIDTH HEIGHT [THREADS]\n");
        return 2;
    }
    struct vision *v = load(argv[1]);
    struct image p = {(uint32_t)atoi(argv[2]), (uint32_t)atoi(argv[3]), NULL};
    if (vision_plan(v, p.width, p.height, &plan, &e))
        die(&e);
    const struct vision_format *f = vision_format(v);
    const struct device_options o = {.threads = argc > 4 ? atoi(argv[4]) : 1, .features = ~0ull};
    struct device *dev = backend_cpu.open(&o, &e);
    float *out = malloc(pixels_count(f, &plan, f->layout) * sizeof(float));
    p.rgb = malloc(3 * (size_t)p.width * p.height);
    if (!dev || !out || !p.rgb)
        die(&e);
    paint(&p);
    struct pixels_workers w = {backend_cpu.host_threads(dev), backend_cpu.host_run, dev,
                               resample_features()};
    const double fast = BEST(RUNS, pixels_make(f, &plan, &p, f->layout, &w, out, &e));
    w.features = 0;
    const double plain = BEST(3, pixels_make(f, &plan, &p, f->layout, &w, out, &e));
    printf("pixels %s %u %u %u %.2f plain %.2f\n", argv[1], p.width, p.height, plan.n_features,
           fast * 1e3, plain * 1e3);
    free(p.rgb);
    free(out);
    backend_cpu.close(dev);
    vision_free(v);
    return 0;
}
