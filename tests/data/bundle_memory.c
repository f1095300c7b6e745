/* Runs a model twice, as two bundles, on the same bytes, and says whether results are the same:
   compiled with -DNBYTES=… of input, -DRESULTS=… of results, and the bundles, unlimited and limited,
   in folders of these names.  The stack of the second call is measured. */
#include <stdint.h>

#include "unlimited/unlimited.h"
#include "limited/limited.h"

/* Of megabytes written out as numbers a compiler makes the same bytes, in half a minute. */
#define WEIGHTS(name)                                                          \
    extern const uint8_t name##_weights[];                                     \
    __asm__(".pushsection .weights, \"a\"\n"                                    \
            ".balign 64\n"                                                     \
            #name "_weights: .incbin \"" #name "/" #name ".weights.bin\"\n"     \
            ".popsection")

WEIGHTS(unlimited);
WEIGHTS(limited);

static _Alignas(64) uint8_t memory[2][UNLIMITED_MUTABLE_NBYTES];
static _Alignas(64) uint8_t scratch[UNLIMITED_SCRATCH_NBYTES];

static void ask(int what, const void *argument)
{
    register int r0 __asm__("r0") = what;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
}

static void fill(float *input)
{
    uint32_t state = 1;
    for (int i = 0; i < NBYTES / 4; i++) {
        state = state * 1664525u + 1013904223u;
        input[i] = (float)(state >> 16) * SCALE;
    }
}

extern uint8_t stack_end[], stack_top[];

/* Calls the model that has less memory; says whether it failed, or took more stack than it says. */
static int call_limited(void)
{
    uint8_t *here, *lowest;
    __asm__ volatile("mov %0, sp" : "=r"(here));
    for (lowest = stack_end; lowest < here; lowest++)
        *(volatile uint8_t *)lowest = 0x5A;
    int failed = limited(limited_weights, memory[1], scratch);
    for (lowest = stack_end; *(volatile uint8_t *)lowest == 0x5A; lowest++)
        ;
    return failed | (here - lowest > LIMITED_STACK_NBYTES);
}

void start(void)
{
    *(volatile uint32_t *)0xE000ED88 |= 0xF << 20; /* switch the floating-point unit on */
    __asm__ volatile("dsb\n isb");
    for (int i = 0; i < 2; i++)
        fill((float *)(void *)memory[i]);
    int failed = unlimited(unlimited_weights, memory[0], scratch);
    for (unsigned i = 0; i < sizeof scratch; i++)
        scratch[i] = i < LIMITED_SCRATCH_NBYTES ? 0xFF : 0x5A; /* NaN: what is read was written */
    failed |= call_limited();
    int zeros = 1;
    for (int i = 0; i < RESULTS; i++) {
        failed |= memory[0][AT + i] != memory[1][AT + i];
        zeros &= memory[0][AT + i] == 0;
    }
    for (unsigned i = LIMITED_SCRATCH_NBYTES; i < sizeof scratch; i++)
        failed |= scratch[i] != 0x5A;
    ask(4, failed ? "failed, or other bits\n" : zeros ? "zeros\n" : "same bits\n");
    ask(24, (const void *)0x20026); /* exit, all is well */
    for (;;)
        ;
}

__attribute__((section(".vectors"), used)) static const void *const vectors[] = {
    stack_top, (const void *)start,
};
