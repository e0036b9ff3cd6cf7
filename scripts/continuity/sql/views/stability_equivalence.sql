-- one dataset, horizon, host, storage, weight, beta and router weight: is the error equivalent to that of storage none
-- mse_ratio [] geometric mean over seeds of mse over mse of storage none
-- low [] lower end of the 90 % t interval of mse_ratio over seed pairs; within 1 % it rejects a larger fall at 5 %
-- high [] upper end of that interval; both within 1 %: two one-sided tests find the errors equivalent
-- verdict [] equivalent, different (the interval lies outside 1 %) or undecided
-- reason [] what prevents a verdict of equivalent
-- needed [] seed pairs at which an interval of this spread around a ratio of 1 would lie within 1 %; NULL for more than 10
-- n_seeds [] seed pairs
WITH t AS (
    FROM (VALUES (1, 6.314), (2, 2.920), (3, 2.353), (4, 2.132), (5, 2.015), (6, 1.943), (7, 1.895), (8, 1.860), (9, 1.833))
        AS t(df, t90)
), cell AS (
    SELECT dataset, horizon, host, storage, weight, beta, router_weight, avg(mse_change) AS centre,
        stddev_samp(mse_change) AS spread, count(*) AS n_seeds
    FROM stability_change GROUP BY ALL
), interval AS (
    SELECT *, t90 * spread / sqrt(n_seeds) AS half
    FROM cell LEFT JOIN t ON df = least(n_seeds - 1, 9)
), judged AS (
    SELECT *, centre - half BETWEEN -ln(1.01) AND ln(1.01) AND centre + half BETWEEN -ln(1.01) AND ln(1.01) AS inside,
        centre - half > ln(1.01) OR centre + half < -ln(1.01) AS outside
    FROM interval
)
SELECT dataset, horizon, host, storage, weight, beta, router_weight, exp(centre) AS mse_ratio,
    exp(centre - half) AS low, exp(centre + half) AS high,
    CASE WHEN inside THEN 'equivalent' WHEN outside THEN 'different' ELSE 'undecided' END AS verdict,
    CASE WHEN inside THEN NULL WHEN half IS NULL THEN 'one seed has no interval'
        WHEN outside THEN 'the error changes by more than 1 %'
        WHEN abs(centre) > ln(1.01) THEN 'the mean change exceeds 1 %, but its interval reaches within'
        ELSE format('pairs differ by {:.2f} % sd: too few seeds', 100 * spread) END AS reason,
    (SELECT min(t.df + 1) FROM t WHERE t.t90 * spread / sqrt(t.df + 1) <= ln(1.01)) AS needed, n_seeds
FROM judged
ORDER BY ALL
