/* plane: norms of planes of float32, fast and to the same bit on every processor. */
#ifndef GRAPEVINE_PEER_ROUND_PLANE_H
#define GRAPEVINE_PEER_ROUND_PLANE_H

#include <stddef.h>

double plane_squared_norm(const float *values, size_t count);
/** The norm of a - b. */
double plane_distance(const float *a, const float *b, size_t count);

#endif
