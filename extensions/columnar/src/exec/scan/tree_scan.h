/*
 * tree_scan.h
 *		ColumnarScan over a partition tree: which leaf comes next.
 *
 * Which leaves there are was decided when the query was planned.  When it begins, those are left out
 * whose bounds the values of parameters and stable functions exclude; leaves are locked
 * and opened when their turn comes, and the others never.
 *
 * Parallel: the leader shares its list.  Each process takes leaves of its own until there are none
 * left; then it joins those who are still reading, whose row groups are taken in turns from the start.
 */
#ifndef COLUMNAR_TREE_SCAN_H
#define COLUMNAR_TREE_SCAN_H

#include "exec/scan/custom_scan.h"

/* ERROR if the leaf is no columnar table any more. */
extern void tree_scan_check_leaf(Relation leaf);

/* ERROR if a leaf in which the snapshot sees nothing was rewritten since the snapshot was taken. */
extern void tree_scan_check_empty(Relation leaf, Snapshot snapshot);

/*
 * When the node is initialised; NULL if it scans a table.  Stores what this session has in write
 * buffers for the leaves.
 */
extern TreeScan *tree_scan_begin(ColumnarScanState *state, int eflags);

/*
 * Opens the next leaf that has rows to be read, of which state->relation and state->scan are;
 * false at the end.
 */
extern bool tree_scan_open_next(ColumnarScanState *state);

/* Closes the leaf that is open, if any. */
extern void tree_scan_close(ColumnarScanState *state);

/* Parameters may have changed: from the first leaf again. */
extern void tree_scan_rescan(ColumnarScanState *state);

/* Bytes and pages of leaves that are closed. */
extern const ScanCounters *tree_scan_counters(const TreeScan *tree);

/* Leaves of the plan, and those that are left; false if that is not known yet. */
extern bool tree_scan_leaves(const TreeScan *tree, int *planned, int *left);

/* May rows of this leaf be asked for?  Also of one that was read, as the scan may begin again. */
extern bool tree_scan_has_leaf(const TreeScan *tree, Oid leaf);

/* What processes share: memory, made by the leader, made anew for a rescan, used by a worker. */
extern Size tree_scan_shared_size(const TreeScan *tree);
extern void tree_scan_share(ColumnarScanState *state, void *shared);
extern void tree_scan_reshare(ColumnarScanState *state);
extern void tree_scan_join(ColumnarScanState *state, void *shared);
/* The memory goes away. */
extern void tree_scan_unshare(ColumnarScanState *state);

#endif
