-- The 13 queries of the star schema benchmark: a flight restricts more of the dimensions from query to query.

-- [q1.1] a year, discounts and quantities
SELECT sum(lo_extendedprice * lo_discount::bigint) AS revenue
FROM lineorder JOIN dates ON lo_orderdate = d_datekey
WHERE d_year = 1993 AND lo_discount BETWEEN 1 AND 3 AND lo_quantity < 25;

-- [q1.2]
SELECT sum(lo_extendedprice * lo_discount::bigint) AS revenue
FROM lineorder JOIN dates ON lo_orderdate = d_datekey
WHERE d_yearmonthnum = 199401 AND lo_discount BETWEEN 4 AND 6 AND lo_quantity BETWEEN 26 AND 35;

-- [q1.3]
SELECT sum(lo_extendedprice * lo_discount::bigint) AS revenue
FROM lineorder JOIN dates ON lo_orderdate = d_datekey
WHERE
	d_weeknuminyear = 6 AND d_year = 1994
	AND lo_discount BETWEEN 5 AND 7 AND lo_quantity BETWEEN 26 AND 35;

-- [q2.1] brands of a region's suppliers
SELECT sum(lo_revenue), d_year, p_brand1
FROM
	lineorder
	JOIN dates ON lo_orderdate = d_datekey
	JOIN part ON lo_partkey = p_partkey
	JOIN supplier ON lo_suppkey = s_suppkey
WHERE p_category = 'MFGR#12' AND s_region = 'AMERICA'
GROUP BY d_year, p_brand1 ORDER BY d_year, p_brand1;

-- [q2.2]
SELECT sum(lo_revenue), d_year, p_brand1
FROM
	lineorder
	JOIN dates ON lo_orderdate = d_datekey
	JOIN part ON lo_partkey = p_partkey
	JOIN supplier ON lo_suppkey = s_suppkey
WHERE p_brand1 BETWEEN 'MFGR#2221' AND 'MFGR#2228' AND s_region = 'ASIA'
GROUP BY d_year, p_brand1 ORDER BY d_year, p_brand1;

-- [q2.3]
SELECT sum(lo_revenue), d_year, p_brand1
FROM
	lineorder
	JOIN dates ON lo_orderdate = d_datekey
	JOIN part ON lo_partkey = p_partkey
	JOIN supplier ON lo_suppkey = s_suppkey
WHERE p_brand1 = 'MFGR#2221' AND s_region = 'EUROPE'
GROUP BY d_year, p_brand1 ORDER BY d_year, p_brand1;

-- [q3.1] where customers and suppliers are
SELECT c_nation, s_nation, d_year, sum(lo_revenue) AS revenue
FROM
	customer
	JOIN lineorder ON lo_custkey = c_custkey
	JOIN supplier ON lo_suppkey = s_suppkey
	JOIN dates ON lo_orderdate = d_datekey
WHERE c_region = 'ASIA' AND s_region = 'ASIA' AND d_year BETWEEN 1992 AND 1997
GROUP BY c_nation, s_nation, d_year ORDER BY d_year, revenue DESC, c_nation, s_nation;

-- [q3.2]
SELECT c_city, s_city, d_year, sum(lo_revenue) AS revenue
FROM
	customer
	JOIN lineorder ON lo_custkey = c_custkey
	JOIN supplier ON lo_suppkey = s_suppkey
	JOIN dates ON lo_orderdate = d_datekey
WHERE
	c_nation = 'UNITED STATES' AND s_nation = 'UNITED STATES' AND d_year BETWEEN 1992 AND 1997
GROUP BY c_city, s_city, d_year ORDER BY d_year, revenue DESC, c_city, s_city;

-- [q3.3]
SELECT c_city, s_city, d_year, sum(lo_revenue) AS revenue
FROM
	customer
	JOIN lineorder ON lo_custkey = c_custkey
	JOIN supplier ON lo_suppkey = s_suppkey
	JOIN dates ON lo_orderdate = d_datekey
WHERE
	c_city IN ('UNITED KI1', 'UNITED KI5') AND s_city IN ('UNITED KI1', 'UNITED KI5')
	AND d_year BETWEEN 1992 AND 1997
GROUP BY c_city, s_city, d_year ORDER BY d_year, revenue DESC, c_city, s_city;

-- [q3.4]
SELECT c_city, s_city, d_year, sum(lo_revenue) AS revenue
FROM
	customer
	JOIN lineorder ON lo_custkey = c_custkey
	JOIN supplier ON lo_suppkey = s_suppkey
	JOIN dates ON lo_orderdate = d_datekey
WHERE
	c_city IN ('UNITED KI1', 'UNITED KI5') AND s_city IN ('UNITED KI1', 'UNITED KI5')
	AND d_yearmonth = 'Dec1997'
GROUP BY c_city, s_city, d_year ORDER BY d_year, revenue DESC, c_city, s_city;

-- [q4.1] profit, by all four dimensions
SELECT d_year, c_nation, sum(lo_revenue - lo_supplycost) AS profit
FROM
	lineorder
	JOIN dates ON lo_orderdate = d_datekey
	JOIN customer ON lo_custkey = c_custkey
	JOIN supplier ON lo_suppkey = s_suppkey
	JOIN part ON lo_partkey = p_partkey
WHERE c_region = 'AMERICA' AND s_region = 'AMERICA' AND p_mfgr IN ('MFGR#1', 'MFGR#2')
GROUP BY d_year, c_nation ORDER BY d_year, c_nation;

-- [q4.2]
SELECT d_year, s_nation, p_category, sum(lo_revenue - lo_supplycost) AS profit
FROM
	lineorder
	JOIN dates ON lo_orderdate = d_datekey
	JOIN customer ON lo_custkey = c_custkey
	JOIN supplier ON lo_suppkey = s_suppkey
	JOIN part ON lo_partkey = p_partkey
WHERE
	c_region = 'AMERICA' AND s_region = 'AMERICA' AND d_year IN (1997, 1998)
	AND p_mfgr IN ('MFGR#1', 'MFGR#2')
GROUP BY d_year, s_nation, p_category ORDER BY d_year, s_nation, p_category;

-- [q4.3]
SELECT d_year, s_city, p_brand1, sum(lo_revenue - lo_supplycost) AS profit
FROM
	lineorder
	JOIN dates ON lo_orderdate = d_datekey
	JOIN customer ON lo_custkey = c_custkey
	JOIN supplier ON lo_suppkey = s_suppkey
	JOIN part ON lo_partkey = p_partkey
WHERE
	c_region = 'AMERICA' AND s_nation = 'UNITED STATES' AND d_year IN (1997, 1998)
	AND p_category = 'MFGR#14'
GROUP BY d_year, s_city, p_brand1 ORDER BY d_year, s_city, p_brand1;
