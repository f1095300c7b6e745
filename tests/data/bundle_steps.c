/* Runs a model that remembers on an emulated board, STEPS times, and says what it puts out, its
   bytes in hexadecimal, and a hash of what it remembers then.  Compiled with -DHEADER="…",
   -DNAME=…, and what the header says of it: -DMUTABLE, -DSCRATCH, -DIN (where its input is),
   -DNBYTES (of that), -DOUT, -DRESULTS and -DCELLS={offset,size},… of what is remembered. */
#include <stdint.h>

#include HEADER

#define JOINED(a, b) a##b
#define OF(a, b) JOINED(a, b)

__asm__(".pushsection .weights, \"a\"\n"
        ".balign 64\n"
        "weights: .incbin \"" WEIGHTS "\"\n"
        ".popsection");

extern const uint8_t weights[];
static _Alignas(64) uint8_t memory[MUTABLE];
static _Alignas(64) uint8_t scratch[SCRATCH];

static void ask(int what, const void *argument)
{
    register int r0 __asm__("r0") = what;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
}

static void say(const char *text)
{
    ask(4, text); /* SYS_WRITE0 */
}

static void say_byte(uint8_t byte)
{
    const char *digits = "0123456789abcdef";
    char text[] = {digits[byte >> 4], digits[byte & 15], 0};
    say(text);
}

static void say_hash(void) /* FNV-1a */
{
    const int cells[][2] = {CELLS};
    uint32_t hash = 2166136261u;
    for (unsigned c = 0; c < sizeof cells / sizeof *cells; c++)
        for (int i = 0; i < cells[c][1]; i++)
            hash = (hash ^ memory[cells[c][0] + i]) * 16777619u;
    for (int shift = 24; shift >= 0; shift -= 8)
        say_byte((uint8_t)(hash >> shift));
}

void start(void)
{
    uint32_t random = 1;
    *(volatile uint32_t *)0xE000ED88 |= 0xF << 20; /* switch the floating-point unit on */
    __asm__ volatile("dsb\n isb");
    int failed = OF(NAME, _reset)(weights, memory);
    for (int step = 0; step < STEPS && !failed; step++) {
        for (int i = 0; i < NBYTES; i++) {
            random = random * 1664525u + 1013904223u;
            memory[IN + i] = (uint8_t)(random >> 24);
        }
        failed = NAME(weights, memory, scratch);
        for (int i = 0; i < RESULTS; i++)
            say_byte(memory[OUT + i]);
        say("/");
        say_hash();
        say(" ");
    }
    say(failed ? "failed\n" : "\n");
    ask(0x18, (const void *)0x20026); /* SYS_EXIT, as planned */
    for (;;)
        ;
}

extern uint8_t stack_top[];

__attribute__((section(".vectors"), used)) static const void *const vectors[] = {
    stack_top,
    (const void *)start,
};
