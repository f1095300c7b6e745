/* Runs a bundle on many inputs, for tests.
 *
 *     driver WEIGHTS INPUTS OUTPUTS COUNT [THREADS]
 *
 * INPUTS holds COUNT mutable regions up to the first output, OUTPUTS gets what follows.  ENTRY and
 * the macros below name an entry point of the header HEADER.  With STACK a call runs on a stack of
 * its own, and the bytes it touched are printed. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef STACK
#include <ucontext.h>
#endif

#include HEADER
#ifdef DYNAMIC
#include "alpenglow_threads.h"
static struct alpenglow_parallel parallel;
static struct alpenglow_threads *team;
#define CALL ENTRY(constants, region, scratch, team ? &parallel : NULL)
#else
#define CALL ENTRY(constants, region, scratch)
#endif

static const uint8_t *constants;
static uint8_t *region, *scratch;
static int status;

static uint8_t *memory(size_t nbytes)
{
    uint8_t *found = aligned_alloc(ALIGNMENT, (nbytes / ALIGNMENT + 1) * ALIGNMENT);
    if (found == NULL)
        abort();
    return found;
}

static void run(void)
{
    status |= CALL;
}

#ifdef STACK
enum { DEPTH = 1 << 20, FRESH = 0x5A };

static int nothing(const uint8_t *a, uint8_t *b, uint8_t *c)
{
    return a == NULL || b == NULL || c == NULL;
}

static int (*volatile ignored)(const uint8_t *, uint8_t *, uint8_t *) = nothing;

static void idle(void)
{
    status |= ignored(constants, region, scratch);
}

/* Returns how many bytes of stack a function touches. */
static size_t touched(void (*function)(void))
{
    static ucontext_t here, there;
    uint8_t *stack = memory(DEPTH);
    memset(stack, FRESH, DEPTH);
    getcontext(&there);
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = DEPTH;
    there.uc_link = &here;
    makecontext(&there, function, 0);
    swapcontext(&here, &there);
    size_t untouched = 0;
    while (untouched < DEPTH && stack[untouched] == FRESH)
        untouched++;
    free(stack);
    return DEPTH - untouched;
}
#endif

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int argc, char **argv)
{
    if (argc < 5)
        return 2;
    FILE *weights = fopen(argv[1], "rb"), *in = fopen(argv[2], "rb"), *out = fopen(argv[3], "wb");
    uint8_t *loaded = memory(CONSTANTS);
    region = memory(MUTABLE);
    scratch = memory(SCRATCH);
    if (!weights || !in || !out || fread(loaded, 1, CONSTANTS, weights) != CONSTANTS)
        return 3;
    constants = loaded;
#ifdef DYNAMIC
    if (argc > 5 && (team = alpenglow_threads_start((unsigned)atoi(argv[5]))) == NULL)
        return 4;
    parallel.parallel_for = alpenglow_threads_run;
    parallel.pool = team;
#endif
    memset(scratch, 0xA5, SCRATCH);
    memset(region, 0xA5, MUTABLE);
    double best = 1e9;
    for (int i = 0; i < atoi(argv[4]); i++) {
        if (fread(region, 1, INPUTS, in) != INPUTS)
            return 5;
        double begin = seconds();
        run();
        double taken = seconds() - begin;
        best = taken < best ? taken : best;
        fwrite(region + INPUTS, 1, MUTABLE - INPUTS, out);
    }
#ifdef STACK
    printf("stack %lu\n", (unsigned long)(touched(run) - touched(idle)));
#endif
    printf("best %.9f\n", best);
#ifdef DYNAMIC
    alpenglow_threads_stop(team);
#endif
    free(loaded);
    free(region);
    free(scratch);
    fclose(weights);
    fclose(in);
    return fclose(out) != 0 || status;
}
