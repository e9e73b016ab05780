/*
 * settings.h
 *		The library's parameters (strata_columnar.*), defined in module.c.
 */
#ifndef COLUMNAR_SETTINGS_H
#define COLUMNAR_SETTINGS_H

extern int columnar_row_group_rows;	   /* strata_columnar.row_group_rows */
extern int columnar_compression;	   /* strata_columnar.compression: CompressionRule */
extern char *columnar_cold_tablespace; /* strata_columnar.cold_tablespace */
extern int columnar_compression_level; /* strata_columnar.compression_level */
extern int
	columnar_write_memory; /* strata_columnar.write_memory, kB over all buffers of a session */
extern bool columnar_enable_custom_scan; /* strata_columnar.enable_custom_scan */
extern bool
	columnar_enable_pruning; /* strata_columnar.enable_pruning: zone maps and Bloom filters */
extern bool
	columnar_enable_vector; /* strata_columnar.enable_vector: expressions and aggregates by batch */
extern bool columnar_enable_tree_scan;	 /* strata_columnar.enable_tree_scan */
extern bool columnar_enable_key_filters; /* strata_columnar.enable_key_filters */
extern bool columnar_enable_late_join;	 /* strata_columnar.enable_late_join */
extern int columnar_tree_scan_leaves;	 /* strata_columnar.tree_scan_leaves */
extern bool columnar_enable_merge;		 /* strata_columnar.enable_merge: background merge */

/* Raw bytes at which a row group is closed although it could have more rows. */
#define ROW_GROUP_BYTES_MAX (64 * 1024 * 1024)

/* Groups with fewer rows and fewer encoded bytes than these are stored inline. */
#define INLINE_ROWS_MAX 1000
#define INLINE_BYTES_MAX 65536

#endif
