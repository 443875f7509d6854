/* One program with three names, for the image (docs/decisions/packaging.md): the name that it is
 * called by says which of the three runs. Each is an object of its own whose only public symbol is
 * its main function, renamed; the Makefile makes them. */
#include <string.h>

int launcher_main(int argc, char **argv);
int router_main(int argc, char **argv);
int model_server_main(int argc, char **argv);

/* Stands for the functions of gRPC that register what no program here uses (UNUSED_GRPC of the
 * Makefile), so that the linker leaves those parts out. */
void unused_grpc(void *builder);
void unused_grpc(void *builder) { (void)builder; }

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } programs[] = {{"router", router_main},
                    {"text-generation-router", router_main},
                    {"image-decoder", router_main}, /* common/image/decoder.h */
                    {"model-server", model_server_main},
                    {"text-generation-server", model_server_main}};
    const char *path = argc > 0 ? argv[0] : "", *slash = strrchr(path, '/');
    for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++)
        if (strcmp(slash ? slash + 1 : path, programs[i].name) == 0)
            return programs[i].run(argc, argv);
    return launcher_main(argc, argv);
}
