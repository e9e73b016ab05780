/*
 * read_ahead.h
 *		Asking the kernel for consecutive blocks of a table before they are read.
 */
#ifndef COLUMNAR_READ_AHEAD_H
#define COLUMNAR_READ_AHEAD_H

#include "compat.h"

#include "utils/rel.h"

/* Asks for the blocks [first, end) of the main fork unless they are in buffers; only a hint. */
extern void read_ahead_blocks(Relation relation, BlockNumber first, BlockNumber end);

#endif
