/* What bundles of the dynamic API share: their configuration, and how they use several threads. */
#ifndef ALPENGLOW_BUNDLE_H
#define ALPENGLOW_BUNDLE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An input or output.  `name`, `type` and `shape` are distances in bytes from the beginning of the
 * configuration; the functions below follow them. */
struct alpenglow_symbol {
    uint32_t name;
    uint32_t type;
    uint32_t shape;
    uint32_t rank;
    uint64_t offset; /* where it lies in the mutable region */
    uint64_t nbytes;
    uint32_t is_output;
    uint32_t reserved;
};

/* What an entry point needs.  The symbols follow: inputs, then outputs, in the model's order. */
struct alpenglow_config {
    uint32_t version; /* 1 */
    uint32_t nbytes;  /* of the whole configuration */
    uint64_t constants_nbytes;
    uint64_t mutable_nbytes;
    uint64_t scratch_nbytes;
    uint64_t stack_nbytes; /* of one call, without what `parallel_for` takes; of C, 0: not known */
    uint32_t alignment;    /* of all three regions */
    uint32_t symbol_count;
};

static inline const struct alpenglow_symbol *alpenglow_symbols(const struct alpenglow_config *c)
{
    return (const struct alpenglow_symbol *)(const void *)(c + 1);
}

static inline const char *alpenglow_name(const struct alpenglow_config *c,
                                         const struct alpenglow_symbol *s)
{
    return (const char *)c + s->name;
}

/* The element type: f32, i8, … */
static inline const char *alpenglow_type(const struct alpenglow_config *c,
                                         const struct alpenglow_symbol *s)
{
    return (const char *)c + s->type;
}

static inline const uint64_t *alpenglow_shape(const struct alpenglow_config *c,
                                              const struct alpenglow_symbol *s)
{
    return (const uint64_t *)(const void *)((const char *)c + s->shape);
}

/* A part of a kernel: iterations [begin, end), in any order and on any thread. */
typedef void (*alpenglow_task)(void *context, int64_t begin, int64_t end);

/* How an entry point uses threads: it calls `parallel_for` once for each kernel, which runs the
 * task on [0, extent), cut into any parts, and returns when all are done. */
struct alpenglow_parallel {
    void (*parallel_for)(void *pool, alpenglow_task task, void *context, int64_t extent);
    void *pool;
};

#ifdef __cplusplus
}
#endif
#endif
