#include "common/rpc/bind.h"
#include "common/file/file_lock.h"
#include "common/rpc/creds.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int take_lock(struct rpc_bind *b, const char *path, struct err *e)
{
    snprintf(b->lock_path, sizeof(b->lock_path), "%s.lock", path);
    b->lock_fd = file_lock_take(b->lock_path, e);
    if (b->lock_fd == FILE_LOCK_TAKEN)
        err_set(e, ERR_SYSTEM, "%s: another server is listening there", path);
    return b->lock_fd < 0 ? -1 : 0;
}

static int add_port(struct rpc_bind *b, grpc_server *g, const char *target, const struct cluster *c)
{
    grpc_server_credentials *creds = rpc_server_creds(c, target, &b->certs);
    int port = creds ? grpc_server_add_http2_port(g, target, creds) : 0;
    grpc_server_credentials_release(creds);
    return port;
}

static int bind_unix(struct rpc_bind *b, const char *path, grpc_server *g, struct err *e)
{
    char target[RPC_UNIX_PATH_MAX + 6];
    if (!*path || strlen(path) > RPC_UNIX_PATH_MAX)
        return err_set(e, ERR_VALIDATION, "%s: a Unix socket's path has 1 to %d bytes", path,
                       RPC_UNIX_PATH_MAX);
    if (take_lock(b, path, e))
        return -1;
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISSOCK(st.st_mode)) {
        rpc_bind_close(b);
        return err_set(e, ERR_VALIDATION, "%s: exists and is not a socket", path);
    }
    snprintf(target, sizeof(target), "unix:%s", path);
    /* The permission to connect is the permission to use the model. The kernel requires write
     * permission, which only our user and root have from the socket's creation on. */
    mode_t before = umask(0177);
    int port = add_port(b, g, target, NULL);
    umask(before);
    if (!port) {
        rpc_bind_close(b);
        return err_set(e, ERR_SYSTEM, "%s: cannot listen there", path);
    }
    return 0;
}

int rpc_bind_open(struct rpc_bind *b, const char *address, const struct cluster *c, grpc_server *g,
                  struct err *e)
{
    *b = (struct rpc_bind){.lock_fd = -1};
    if (!strncmp(address, "tcp://", 6)) {
        if (cluster_allows(c ? c->kind : CLUSTER_OPEN, address, e))
            return -1;
        if (!strrchr(address + 6, ':') || !(b->port = add_port(b, g, address + 6, c)))
            return err_set(e, ERR_SYSTEM, "%s: cannot listen there", address);
        return 0;
    }
    const char *path = !strncmp(address, "unix://", 7) ? address + 7
                       : !strncmp(address, "unix:", 5) ? address + 5
                                                       : address;
    return bind_unix(b, path, g, e);
}

void rpc_bind_close(struct rpc_bind *b)
{
    file_lock_release(b->lock_fd, b->lock_path);
    b->lock_fd = -1;
}
