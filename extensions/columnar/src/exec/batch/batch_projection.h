/*
 * batch_projection.h
 *		Batches of what a node's target list computes of its batches.
 */
#ifndef COLUMNAR_BATCH_PROJECTION_H
#define COLUMNAR_BATCH_PROJECTION_H

#include "exec/batch/batch_source.h"

/* Compiles the target list of a node that has batches, for inputs that are its batches; expressions live in `context`. */
extern VectorExpression **batch_projection_compile(BatchSource *source, MemoryContext context);

/* Column i of a projection is the i-th of the target list.  Memory: a child of the current context. */
typedef struct BatchProjection BatchProjection;

extern BatchProjection *batch_projection_create(BatchSource *source);

/*
 * The next batch of the node, projected; NULL at the end.  A column is computed for all of its selected rows when
 * it is first asked for; the batch's selection may be changed.
 */
extern VectorBatch *batch_projection_next(BatchProjection *projection);

/* The node is told to begin anew; its parameters may have changed. */
extern void batch_projection_rescan(BatchProjection *projection);

#endif
