/*
 * sample_rows.c
 *		TABLESAMPLE strata_worker.rows (fraction): rows for the coordinator's ANALYZE.
 *
 * ANALYZE wants few rows of a large table, from as many places as it can afford to read.  SYSTEM gives all rows of few
 * blocks, and BERNOULLI reads all blocks.  This is between them, as ANALYZE's own sample is: of
 * some blocks, one row in ROWS_TAKEN_EVERY, and all rows of the table are equally likely.  A condition above SYSTEM would do the same,
 * after the columnar store has put all rows of a block together.
 */
#include "postgres.h"

#include <math.h>

#include "access/tsmapi.h"
#include "catalog/pg_type.h"
#include "common/pg_prng.h"
#include "fmgr.h"
#include "nodes/execnodes.h"
#include "nodes/pathnodes.h"
#include "optimizer/optimizer.h"

PG_FUNCTION_INFO_V1(strata_worker_rows);

/* Of a block that is read, one row in so many is taken, unless that is too few of all. */
#define ROWS_TAKEN_EVERY 10

typedef struct Sampler
{
	pg_prng_state random;
	double blocks; /* the share of blocks to read */
	double rows;   /* and of their rows to take */
	BlockNumber next_block;
	OffsetNumber offset; /* the last one taken in this block */
} Sampler;

static double
share_of_blocks(double fraction)
{
	return Min(fraction * ROWS_TAKEN_EVERY, 1.0);
}

static void
get_sample_size(PlannerInfo *root, RelOptInfo *rel, List *arguments, BlockNumber *pages,
				double *tuples)
{
	Node *argument = estimate_expression_value(root, linitial(arguments));
	double fraction = 0.01;

	if (IsA(argument, Const) && !((Const *) argument)->constisnull)
		fraction = DatumGetFloat8(((Const *) argument)->constvalue);
	if (isnan(fraction) || fraction <= 0 || fraction > 1)
		fraction = 1; /* begin_scan() refuses it */
	*pages = ceil(rel->pages * share_of_blocks(fraction));
	*tuples = Max(rint(rel->tuples * fraction), 1);
}

static void
init_scan(SampleScanState *node, int eflags)
{
	node->tsm_state = palloc0(sizeof(Sampler));
}

static void
begin_scan(SampleScanState *node, Datum *arguments, int count, uint32 seed)
{
	Sampler *sampler = node->tsm_state;
	double fraction = DatumGetFloat8(arguments[0]);

	if (isnan(fraction) || fraction <= 0 || fraction > 1)
		ereport(ERROR, (errcode(ERRCODE_INVALID_TABLESAMPLE_ARGUMENT),
						errmsg("fraction of a sample must be greater than 0 and at most 1")));
	pg_prng_seed(&sampler->random, seed);
	sampler->blocks = share_of_blocks(fraction);
	sampler->rows = fraction / sampler->blocks;
	sampler->next_block = 0;
	sampler->offset = InvalidOffsetNumber;
	node->use_bulkread = true;
	node->use_pagemode = true;
}

static BlockNumber
find_next_block(SampleScanState *node, BlockNumber count)
{
	Sampler *sampler = node->tsm_state;

	while (sampler->next_block < count)
	{
		BlockNumber block = sampler->next_block++;

		if (pg_prng_double(&sampler->random) < sampler->blocks)
			return block;
	}
	return InvalidBlockNumber;
}

static OffsetNumber
find_next_row(SampleScanState *node, BlockNumber block, OffsetNumber last)
{
	Sampler *sampler = node->tsm_state;

	while (sampler->offset < last)
	{
		sampler->offset++;
		if (pg_prng_double(&sampler->random) < sampler->rows)
			return sampler->offset;
	}
	sampler->offset = InvalidOffsetNumber;
	return InvalidOffsetNumber;
}

/* rows(internal): the handler */
Datum
strata_worker_rows(PG_FUNCTION_ARGS)
{
	TsmRoutine *routine = makeNode(TsmRoutine);

	routine->parameterTypes = list_make1_oid(FLOAT8OID);
	routine->repeatable_across_queries = false;
	routine->repeatable_across_scans = false;
	routine->SampleScanGetSampleSize = get_sample_size;
	routine->InitSampleScan = init_scan;
	routine->BeginSampleScan = begin_scan;
	routine->NextSampleBlock = find_next_block;
	routine->NextSampleTuple = find_next_row;
	PG_RETURN_POINTER(routine);
}
