/* Goes step by step through a bundle with state that grows, for tests: state WEIGHTS ROWS OUTPUTS
 *
 * ROWS holds the rows of input x, OUTPUTS gets those of output y; of the mask all are 0. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dec.h"

static uint8_t *memory(size_t nbytes)
{
    uint8_t *found = aligned_alloc(DEC_ALIGNMENT, (nbytes / DEC_ALIGNMENT + 1) * DEC_ALIGNMENT);
    if (found == NULL)
        abort();
    return memset(found, 0xA5, nbytes);
}

int main(int argc, char **argv)
{
    FILE *weights = fopen(argv[1], "rb"), *in = fopen(argv[2], "rb"), *out = fopen(argv[3], "wb");
    if (argc < 4 || !weights || !in || !out)
        return 10;
    uint8_t *w = memory(DEC_CONSTANTS_NBYTES), *data = memory(DEC_MUTABLE_NBYTES);
    uint8_t *scratch = memory(DEC_SCRATCH_NBYTES);
    if (fread(w, 1, DEC_CONSTANTS_NBYTES, weights) != DEC_CONSTANTS_NBYTES)
        return 11;
    if (dec(w, data, scratch) != 4 || dec_length(data) != -1 || dec_reset(w, data) != 0)
        return 12;
    for (int64_t i = 0; i < DEC_STATE_LENGTH; i++) {
        if (fread(data + DEC_INPUT_X_OFFSET, 1, DEC_INPUT_X_NBYTES, in) != DEC_INPUT_X_NBYTES)
            return 13;
        memset(data + DEC_INPUT_MASK_OFFSET, 0, DEC_INPUT_MASK_NBYTES);
        if (dec(w, data, scratch) != 0 || dec_length(data) != i + DEC_ROWS)
            return 14;
        fwrite(data + DEC_OUTPUT_Y_OFFSET, 1, DEC_OUTPUT_Y_NBYTES, out);
    }
    if (dec(w, data, scratch) != 5 || dec_length(data) != DEC_STATE_LENGTH)
        return 15;
    if (dec_trim(data, -1) != 5 || dec_trim(data, DEC_STATE_LENGTH + 1) != 5)
        return 16;
    if (dec_trim(data, 2) != 0 || dec_length(data) != 2 || dec(w, data, scratch) != 0)
        return 17;
    if (dec_reset(w, data) != 0 || dec_length(data) != 0 || dec_reset(w, data + 8) != 1)
        return 18;
    free(w);
    free(data);
    free(scratch);
    return fclose(weights) || fclose(in) || fclose(out);
}
