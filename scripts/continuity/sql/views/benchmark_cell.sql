-- one labelled task and model: test accuracy over seeds
-- accuracy [] mean test accuracy over seeds
-- low [] lower end of the 95 % interval of accuracy over test sequences and, where there are several, seeds
-- high [] upper end of that interval; seeds: residual variance pooled over all cells; test sequences: Agresti and Coull's
-- n_seeds [] runs averaged
-- n_failed [] runs without a number; they are in no average
WITH pooled AS (
    SELECT sum((accuracy - centre) ** 2) AS squares, count(*) - count(DISTINCT (task, model)) AS df
    FROM (
        SELECT *, avg(accuracy) OVER (PARTITION BY task, model) AS centre
        FROM benchmark WHERE accuracy IS NOT NULL
    )
), cell AS (
    SELECT task, model, avg(accuracy) AS accuracy, max(majority) AS majority, count(accuracy) AS n_seeds,
        count(*) - count(accuracy) AS n_failed, max(n_test) AS n_test,
        (avg(accuracy) * max(n_test) + 2) / (max(n_test) + 4) AS shrunk
    FROM benchmark GROUP BY ALL
), spread AS (
    SELECT cell.*, shrunk * (1 - shrunk) / (n_test + 4) AS by_sequence,
        CASE WHEN n_seeds > 1 THEN squares / pooled.df / n_seeds END AS by_seed, pooled.df
    FROM cell CROSS JOIN pooled
), interval AS (
    SELECT spread.*, coalesce(shrunk, accuracy) AS centre,
        CASE WHEN by_seed IS NULL THEN 1.96 ELSE t END * sqrt(coalesce(by_seed + by_sequence, by_seed, by_sequence)) AS half
    FROM spread LEFT JOIN t_quantiles ON t_quantiles.df = least(spread.df, 1000)
)
SELECT task, model, accuracy, CASE WHEN half IS NOT NULL THEN least(accuracy, greatest(0, centre - half)) END AS low,
    CASE WHEN half IS NOT NULL THEN greatest(accuracy, least(1, centre + half)) END AS high, majority, n_seeds, n_test, n_failed
FROM interval
ORDER BY ALL
