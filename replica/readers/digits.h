/*
 * data_digits: a small data set inside the executable: the 1,797 8x8 images of UCI optdigits' test
 * set, as scikit-learn ships them (E. Alpaydin, C. Kaynak; CC BY 4.0).
 */
#ifndef GRAPEVINE_REPLICA_READERS_DIGITS_H
#define GRAPEVINE_REPLICA_READERS_DIGITS_H

#include <stdint.h>

enum { DIGITS_SAMPLES = 1797, DIGITS_SIDE = 8, DIGITS_PIXELS = 64, DIGITS_CLASSES = 10 };

/** The packed form (digits_values.c says how), for digits_unpack(). */
extern const char digits_text[];

/** All samples in the set's order: values 0 to 16 into `values` [DIGITS_SAMPLES * DIGITS_PIXELS],
 *  labels 0 to 9 into `labels` [DIGITS_SAMPLES]. */
void digits_unpack(uint8_t *values, uint8_t *labels);

#endif
