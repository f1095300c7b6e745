/* A team of POSIX threads for bundles of the dynamic API.
 *
 * A helper waits for the next job by looking at its number for some microseconds, then asleep.  It
 * counts itself among the sleepers before it looks a last time, and a job gets its number before
 * the sleepers are counted: one of the two always sees the other. */
#include "alpenglow_threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { PATIENCE = 4000 };

struct helper {
    struct alpenglow_threads *team;
    unsigned number;
    pthread_t thread;
};

struct alpenglow_threads {
    pthread_mutex_t leader; /* held while a job runs */
    pthread_mutex_t lock;   /* of the sleepers */
    pthread_cond_t wake;
    atomic_uint job;
    atomic_uint working;
    atomic_uint sleepers;
    atomic_int stopping;
    alpenglow_task task;
    void *context;
    int64_t extent;
    unsigned count;
    unsigned started;
    struct helper helpers[];
};

static void run_part(const struct alpenglow_threads *team, unsigned number)
{
    int64_t begin = team->extent * number / team->count;
    int64_t end = team->extent * (number + 1) / team->count;
    if (begin < end)
        team->task(team->context, begin, end);
}

/* Wait for a job other than `last`; returns its number. */
static unsigned next_job(struct alpenglow_threads *team, unsigned last)
{
    for (unsigned look = 0; look < PATIENCE; look++) {
        unsigned job = atomic_load_explicit(&team->job, memory_order_acquire);
        if (job != last)
            return job;
        if (look % 64 == 63)
            sched_yield();
    }
    pthread_mutex_lock(&team->lock);
    atomic_fetch_add(&team->sleepers, 1);
    while (atomic_load(&team->job) == last)
        pthread_cond_wait(&team->wake, &team->lock);
    atomic_fetch_sub(&team->sleepers, 1);
    pthread_mutex_unlock(&team->lock);
    return atomic_load(&team->job);
}

static void *help(void *given)
{
    const struct helper *self = given;
    struct alpenglow_threads *team = self->team;
    unsigned job = 0;
    for (;;) {
        job = next_job(team, job);
        if (atomic_load(&team->stopping))
            return NULL;
        run_part(team, self->number);
        atomic_fetch_sub_explicit(&team->working, 1, memory_order_release);
    }
}

static void call_helpers(struct alpenglow_threads *team)
{
    atomic_fetch_add(&team->job, 1);
    if (atomic_load(&team->sleepers) == 0)
        return;
    pthread_mutex_lock(&team->lock);
    pthread_cond_broadcast(&team->wake);
    pthread_mutex_unlock(&team->lock);
}

struct alpenglow_threads *alpenglow_threads_start(unsigned count)
{
    if (count == 0)
        return NULL;
    struct alpenglow_threads *team = calloc(1, sizeof *team + count * sizeof team->helpers[0]);
    if (team == NULL)
        return NULL;
    team->count = count;
    pthread_mutex_init(&team->leader, NULL);
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->wake, NULL);
    for (unsigned i = 0; i + 1 < count; i++) {
        struct helper *h = &team->helpers[i];
        h->team = team;
        h->number = i + 1;
        if (pthread_create(&h->thread, NULL, help, h) != 0) {
            alpenglow_threads_stop(team);
            return NULL;
        }
        team->started++;
    }
    return team;
}

void alpenglow_threads_run(void *pool, alpenglow_task task, void *context, int64_t extent)
{
    struct alpenglow_threads *team = pool;
    if (team->started == 0 || pthread_mutex_trylock(&team->leader) != 0) {
        task(context, 0, extent);
        return;
    }
    team->task = task;
    team->context = context;
    team->extent = extent;
    atomic_store(&team->working, team->started);
    call_helpers(team);
    run_part(team, 0);
    for (unsigned look = 1; atomic_load_explicit(&team->working, memory_order_acquire); look++)
        if (look % 64 == 0)
            sched_yield();
    pthread_mutex_unlock(&team->leader);
}

void alpenglow_threads_stop(struct alpenglow_threads *team)
{
    if (team == NULL)
        return;
    atomic_store(&team->stopping, 1);
    call_helpers(team);
    for (unsigned i = 0; i < team->started; i++)
        pthread_join(team->helpers[i].thread, NULL);
    pthread_cond_destroy(&team->wake);
    pthread_mutex_destroy(&team->lock);
    pthread_mutex_destroy(&team->leader);
    free(team);
}
