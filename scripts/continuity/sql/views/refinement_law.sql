-- one model, method, step rule and amplitude: does drift follow the hold error of the input, over systems and step scales
-- rank_correlation [] mean over seeds of Spearman's coefficient of drift and hold_error over systems and step scales
-- low [] lower end of the 95 % t interval of rank_correlation over seeds, at least -1
-- high [] upper end of the 95 % t interval of rank_correlation over seeds, at most 1
-- n_points [] systems x step scales compared
-- n_systems [] systems compared; within one, the coefficient only says that drift falls with the step
-- n_seeds [] runs averaged
WITH ranked AS (
    SELECT *,
        rank() OVER (PARTITION BY model, method, step_rule, amplitude, seed ORDER BY drift)
        + (count(*) OVER (PARTITION BY model, method, step_rule, amplitude, seed, drift) - 1) / 2 AS drift_rank,
        rank() OVER (PARTITION BY model, method, step_rule, amplitude, seed ORDER BY hold_error)
        + (count(*) OVER (PARTITION BY model, method, step_rule, amplitude, seed, hold_error) - 1) / 2 AS hold_rank
    FROM refinement WHERE drift > 0 AND hold_error > 0
), run AS (
    SELECT model, method, step_rule, amplitude, seed, nullif(corr(drift_rank, hold_rank), 'nan') AS rho, count(*) AS n_points,
        count(DISTINCT system) AS n_systems
    FROM ranked GROUP BY ALL HAVING count(*) > 2
), cell AS (
    SELECT model, method, step_rule, amplitude, avg(rho) AS rank_correlation, stddev_samp(rho) AS spread,
        min(n_points) AS n_points, min(n_systems) AS n_systems, count(rho) AS n_seeds
    FROM run GROUP BY ALL
)
SELECT model, method, step_rule, amplitude, rank_correlation,
    CASE WHEN n_seeds > 1 THEN greatest(-1, rank_correlation - t * spread / sqrt(n_seeds)) END AS low,
    CASE WHEN n_seeds > 1 THEN least(1, rank_correlation + t * spread / sqrt(n_seeds)) END AS high,
    n_points, n_systems, n_seeds
FROM cell LEFT JOIN t_quantiles ON df = least(n_seeds - 1, 1000)
ORDER BY ALL
