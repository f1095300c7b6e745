/* A team of POSIX threads for bundles of the dynamic API. */
#ifndef ALPENGLOW_THREADS_H
#define ALPENGLOW_THREADS_H

#include "alpenglow_bundle.h"

#ifdef __cplusplus
extern "C" {
#endif

struct alpenglow_threads;

/* Start a team of `count` threads, the caller counted; NULL if that cannot be done. */
struct alpenglow_threads *alpenglow_threads_start(unsigned count);

/* Run a task on the team: the `parallel_for` of a `struct alpenglow_parallel` whose pool is the
 * team.  A caller that finds the team at work for somebody else runs its task alone. */
void alpenglow_threads_run(void *team, alpenglow_task task, void *context, int64_t extent);

/* End the threads and free the team, which nobody uses any more. */
void alpenglow_threads_stop(struct alpenglow_threads *team);

#ifdef __cplusplus
}
#endif
#endif
