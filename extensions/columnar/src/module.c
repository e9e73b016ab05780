/*
 * module.c
 *		The library's entry: parameters, hooks, callbacks.
 *
 * Nothing here needs shared memory, so the library works when it is loaded on
 * demand, by the first use of a columnar table in a session; in
 * shared_preload_libraries it saves that moment.
 */
#include "compat.h"

#include <limits.h>

#include "fmgr.h"
#include "utils/guc.h"

#include "store/catalog/merge_request.h"
#include "exec/aggregate/aggregate.h"
#include "exec/batch/batch_offer.h"
#include "store/rows/columnar_slot.h"
#include "exec/scan/custom_scan.h"
#include "exec/plan/decorrelate_hook.h"
#include "exec/join/join.h"
#include "store/options/options.h"
#include "store/rows/own_deletes.h"
#include "store/catalog/read_note.h"
#include "store/options/settings.h"
#include "exec/sort/sort.h"
#include "exec/sort/topn.h"
#include "exec/scan/tree_guard.h"
#include "exec/scan/tree_plan.h"
#include "exec/window/window.h"
#include "store/rows/write_buffer.h"

COMPAT_MODULE_MAGIC("strata_columnar");

extern PGDLLEXPORT void _PG_init(void);

int columnar_row_group_rows = ROW_GROUP_ROWS_MAX;
int columnar_compression = COMPRESSION_HOT;
int columnar_compression_level = 3;
char *columnar_cold_tablespace = NULL;
int columnar_write_memory = 512 * 1024;
bool columnar_enable_custom_scan = true;
bool columnar_enable_pruning = true;
bool columnar_enable_vector = true;
bool columnar_enable_key_filters = true;
bool columnar_enable_late_join = true;
bool columnar_enable_tree_scan = true;
int columnar_tree_scan_leaves = 8;
bool columnar_enable_merge = true;

static const struct config_enum_entry compression_rules[] = {
	{"hot", COMPRESSION_HOT, false},   {"cold", COMPRESSION_COLD, false},
	{"none", COMPRESSION_NONE, false}, {"lz4", COMPRESSION_LZ4, false},
	{"zstd", COMPRESSION_ZSTD, false}, {NULL, 0, false},
};

/* Define the parameters; each is documented by its own text. */
static void
define_settings(void)
{
	DefineCustomIntVariable("strata_columnar.row_group_rows",
							"Rows of a row group, for tables without an option of their own.", NULL,
							&columnar_row_group_rows, ROW_GROUP_ROWS_MAX, BLOCK_ROWS,
							ROW_GROUP_ROWS_MAX, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("strata_columnar.compression",
							 "Compression rule of tables without an option of their own.",
							 "hot: lz4 where it saves a tenth, numbers as they are encoded. "
							 "cold: zstd where it saves anything. Or one codec: none, lz4, zstd.",
							 &columnar_compression, COMPRESSION_HOT, compression_rules, PGC_USERSET,
							 0, NULL, NULL, NULL);
	DefineCustomIntVariable("strata_columnar.compression_level",
							"Level of zstd for tables without an option of their own.", NULL,
							&columnar_compression_level, 3, 1, 19, PGC_USERSET, 0, NULL, NULL,
							NULL);
	DefineCustomStringVariable("strata_columnar.cold_tablespace",
							   "Tablespace in which tables are compressed as cold ones by default.",
							   "The empty string: none.", &columnar_cold_tablespace, "cold",
							   PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"strata_columnar.write_memory", "Memory for rows of this session that are not yet stored.",
		"Past it the largest buffer is stored, as a smaller row group.", &columnar_write_memory,
		512 * 1024, 1024, INT_MAX / 2, PGC_USERSET, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomBoolVariable("strata_columnar.enable_custom_scan",
							 "Lets the planner use the columnar scan with projection and filters.",
							 NULL, &columnar_enable_custom_scan, true, PGC_USERSET, GUC_EXPLAIN,
							 NULL, NULL, NULL);
	DefineCustomBoolVariable("strata_columnar.enable_pruning",
							 "Skips row groups and blocks by minima, maxima and Bloom filters.",
							 NULL, &columnar_enable_pruning, true, PGC_USERSET, GUC_EXPLAIN, NULL,
							 NULL, NULL);
	DefineCustomBoolVariable("strata_columnar.enable_vector",
							 "Evaluates conditions, expressions and aggregates batch by batch.",
							 NULL, &columnar_enable_vector, true, PGC_USERSET, GUC_EXPLAIN, NULL,
							 NULL, NULL);
	DefineCustomBoolVariable("strata_columnar.enable_key_filters",
							 "Leaves out rows of scans by the keys of joins above.", NULL,
							 &columnar_enable_key_filters, true, PGC_USERSET, GUC_EXPLAIN, NULL,
							 NULL, NULL);
	DefineCustomBoolVariable("strata_columnar.enable_late_join",
							 "Lets nested loops become hash joins when they have too many rows.",
							 NULL, &columnar_enable_late_join, true, PGC_USERSET, GUC_EXPLAIN, NULL,
							 NULL, NULL);
	DefineCustomBoolVariable("strata_columnar.enable_tree_scan",
							 "Lets the planner scan a tree of columnar partitions as one relation.",
							 NULL, &columnar_enable_tree_scan, true, PGC_USERSET, GUC_EXPLAIN, NULL,
							 NULL, NULL);
	DefineCustomIntVariable("strata_columnar.tree_scan_leaves",
							"Partitions of which a tree is scanned as one relation.",
							"With fewer left by the conditions, each is planned by itself.",
							&columnar_tree_scan_leaves, 8, 1, INT_MAX, PGC_USERSET, GUC_EXPLAIN,
							NULL, NULL, NULL);
	DefineCustomBoolVariable("strata_columnar.enable_merge",
							 "Lets a background worker merge small row groups after commits.", NULL,
							 &columnar_enable_merge, true, PGC_USERSET, 0, NULL, NULL, NULL);
	MarkGUCPrefixReserved("strata_columnar");
}

void
_PG_init(void)
{
	custom_scan_initialize();	   /* first: it fails when another columnar store is loaded */
	decorrelate_hook_initialize(); /* defines its parameter, so before the prefix is reserved */
	define_settings();
	metadata_count_initialize();
	aggregate_initialize();
	join_initialize();
	topn_initialize();
	sort_initialize();
	window_initialize();
	bitmap_prefetch_initialize();
	tree_plan_initialize();
	tree_guard_initialize();
	columnar_slot_initialize();
	write_buffer_initialize();
	options_initialize();
	own_deletes_initialize();
	batch_offer_initialize();
	merge_request_initialize();
	read_note_initialize();
}
