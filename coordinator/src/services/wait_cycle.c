/*
 * wait_cycle.c
 *		Cycles in a graph of waits: pure functions.
 *
 * A depth-first walk; a pair that leads back to a node of the path under way closes a cycle.  The
 * path is kept in an array, not on the stack: a queue before one hot row may be as long as
 * max_connections.
 */
#include "postgres.h"

#include "services/wait_cycle.h"

typedef enum NodeState
{
	NODE_NEW = 0,
	NODE_ON_PATH,
	NODE_DONE
} NodeState;

/* The next pair after `last` that starts at a node, -1 when there is none. */
static int
next_pair(const WaitPair *pairs, int count, const bool *ignored, int node, int last)
{
	for (int i = last + 1; i < count; i++)
	{
		if (pairs[i].from == node && !ignored[i])
			return i;
	}
	return -1;
}

/* Walk from a node that was not seen yet; the length of the cycle that was met, or 0. */
static int
walk_from(const WaitPair *pairs, int count, const bool *ignored, NodeState *states, int start,
		  int *path)
{
	int depth = 0;
	int node = start;
	int last = -1;

	states[start] = NODE_ON_PATH;
	for (;;)
	{
		int pair = next_pair(pairs, count, ignored, node, last);

		if (pair < 0)
		{
			states[node] = NODE_DONE;
			if (depth == 0)
				return 0;
			last = path[--depth];
			node = pairs[last].from;
			continue;
		}
		last = pair;
		if (states[pairs[pair].to] == NODE_DONE)
			continue;
		path[depth++] = pair;
		if (states[pairs[pair].to] == NODE_ON_PATH)
		{
			int first = depth - 1;

			while (pairs[path[first]].from != pairs[pair].to)
				first--;
			memmove(path, path + first, (depth - first) * sizeof(int));
			return depth - first;
		}
		node = pairs[pair].to;
		states[node] = NODE_ON_PATH;
		last = -1;
	}
}

int
wait_cycle_find(const WaitPair *pairs, int count, const bool *ignored, int nodes, int *cycle)
{
	NodeState *states = palloc0((nodes + 1) * sizeof(NodeState));
	int length = 0;

	for (int node = 0; node < nodes && length == 0; node++)
	{
		if (states[node] == NODE_NEW)
			length = walk_from(pairs, count, ignored, states, node, cycle);
	}
	pfree(states);
	return length;
}
