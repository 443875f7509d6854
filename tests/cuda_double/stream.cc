/* stream.cc - streams that do nothing before somebody waits for them; graphs and events. */
#include "tests/cuda_double/inside.h"
#include <set>
#include <vector>

typedef std::vector<std::function<void()>> work;
struct double_stream {
    work waiting;
    uint64_t run; /* so many have left `waiting` by being run */
    bool capturing;
};
struct double_graph {
    work steps;
    int references;
};
struct double_event {
    cudaStream_t stream;
    uint64_t after; /* double_stream.run then */
    bool timed;
    uint64_t ns; /* of a timed one: when the work before it had ended */
};
static std::set<cudaStream_t> streams;

static void enqueue(cudaStream_t s, std::function<void()> f) { s->waiting.push_back(std::move(f)); }
void double_enqueue(cudaStream_t s, std::function<void()> f) { enqueue(s, std::move(f)); }
bool double_capturing(cudaStream_t s) { return s->capturing; }

/* Until so many have been run, and not one more: who relies on the others has waited for too
 * little. */
static void run_stream_until(cudaStream_t s, uint64_t n)
{
    if (s->run >= n || s->waiting.empty())
        return;
    size_t k = (size_t)(n - s->run) < s->waiting.size() ? (size_t)(n - s->run) : s->waiting.size();
    work now(s->waiting.begin(), s->waiting.begin() + (long)k);
    s->waiting.erase(s->waiting.begin(), s->waiting.begin() + (long)k);
    s->run += k;
    double_open_memory(true);
    for (auto &f : now)
        f();
    double_open_memory(false);
}

static void run_stream(cudaStream_t s) { run_stream_until(s, s->run + s->waiting.size()); }

void double_run_all_streams(void)
{
    for (cudaStream_t s : streams)
        if (!s->capturing)
            run_stream(s);
}

cudaError_t double_launch(dim3 grid, uint32_t blocks, dim3 threads, size_t smem, cudaStream_t s,
                          bool overlap, std::function<void()> body)
{
    if (double_lost())
        return cudaErrorIllegalAddress;
    if (!double_grid_fits(grid, blocks, threads, smem))
        return cudaErrorInvalidValue;
    if (machine.idle)
        return cudaSuccess;
    enqueue(s, [=]() mutable {
        machine.launches++;
        if (!overlap)
            double_chain_begins();
        double_chain_goes_on();
        double_run_grid(grid, blocks, threads, smem, body);
    });
    return cudaSuccess;
}

extern "C" cudaError_t cudaMemsetAsync(void *p, int v, size_t n, cudaStream_t s)
{
    enqueue(s, [=] { double_chain_begins(), memset(p, v, n); });
    return cudaSuccess;
}

extern "C" cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t n,
                                       enum cudaMemcpyKind kind, cudaStream_t s)
{
    return cudaMemcpy2DAsync(dst, n, src, n, n, 1, kind, s);
}

extern "C" cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src,
                                         size_t src_pitch, size_t width, size_t height,
                                         enum cudaMemcpyKind kind, cudaStream_t s)
{
    bool up = kind == cudaMemcpyHostToDevice;
    if (kind == cudaMemcpyDeviceToDevice) {
        if (!double_on_device(dst) || !double_on_device(src) || height != 1)
            return cudaErrorInvalidValue;
        enqueue(s, [=] { double_chain_begins(), memmove(dst, src, width); });
        return cudaSuccess;
    }
    if (!double_on_device(up ? dst : src) || double_on_device(up ? src : dst) || !height)
        return cudaErrorInvalidValue;
    char *host = (char *)const_cast<void *>(up ? src : dst);
    char *end = host + (height - 1) * (up ? src_pitch : dst_pitch) + width;
    if (!double_is_pinned(host, end))
        return cudaErrorInvalidValue; /* the backend copies through pinned memory only */
    enqueue(s, [=] {
        double_chain_begins();
        for (size_t i = 0; i < height; i++)
            memcpy((char *)dst + i * dst_pitch, (const char *)src + i * src_pitch, width);
    });
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
    (void)flags;
    streams.insert(*s = new double_stream());
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    run_stream(s);
    streams.erase(s);
    delete s;
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    if (double_lost())
        return cudaErrorIllegalAddress;
    if (s->capturing)
        return cudaErrorStreamCaptureUnsupported;
    run_stream(s);
    return cudaSuccess;
}

/* Not ready when it is asked for the first time. */
extern "C" cudaError_t cudaStreamQuery(cudaStream_t s)
{
    if (double_lost())
        return cudaErrorIllegalAddress;
    if (s->waiting.empty())
        return cudaSuccess;
    run_stream(s);
    return cudaErrorNotReady;
}

extern "C" cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
    (void)mode;
    run_stream(s);
    s->capturing = true;
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g)
{
    if (!s->capturing)
        return cudaErrorInvalidValue;
    s->capturing = false;
    *g = new double_graph{{}, 1};
    (*g)->steps.swap(s->waiting);
    return cudaSuccess;
}

static cudaError_t drop(double_graph *g)
{
    if (--g->references == 0)
        delete g;
    return cudaSuccess;
}

extern "C" cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long f)
{
    (void)f;
    if (machine.graphs_fail > 0 && machine.graphs_fail--)
        return cudaErrorMemoryAllocation;
    g->references++;
    *x = g;
    return cudaSuccess;
}
extern "C" cudaError_t cudaGraphDestroy(cudaGraph_t g) { return drop(g); }
extern "C" cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x) { return drop(x); }

extern "C" cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s)
{
    if (double_lost())
        return cudaErrorIllegalAddress;
    machine.graph_launches++;
    enqueue(s, double_chain_begins);
    for (auto &f : x->steps)
        enqueue(s, f);
    return cudaSuccess;
}

extern "C" cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
    *e = new double_event{NULL, 0, !(flags & cudaEventDisableTiming), 0};
    return cudaSuccess;
}
extern "C" cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    if (e->timed)
        enqueue(s, [=] { e->ns = double_ns(); });
    e->stream = s;
    e->after = s->run + s->waiting.size();
    return cudaSuccess;
}
extern "C" cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    if (double_lost())
        return cudaErrorIllegalAddress;
    if (e->stream && e->stream->capturing)
        return cudaErrorStreamCaptureUnsupported;
    if (e->stream)
        run_stream_until(e->stream, e->after);
    return cudaSuccess;
}
/* Not ready when it is asked for the first time. */
extern "C" cudaError_t cudaEventQuery(cudaEvent_t e)
{
    if (!e->stream || e->stream->run >= e->after)
        return cudaSuccess;
    cudaError_t rc = cudaEventSynchronize(e);
    return rc == cudaSuccess ? cudaErrorNotReady : rc;
}
extern "C" cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    if (!from->timed || !to->timed || from->stream->run < from->after ||
        to->stream->run < to->after)
        return cudaErrorInvalidValue;
    *ms = (float)((double)(to->ns - from->ns) * 1e-6);
    return cudaSuccess;
}
extern "C" cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    delete e;
    return cudaSuccess;
}
