-- one kind of comparison that this study makes: the smallest true difference that it finds in four of five repetitions
-- stage [] the stage that it is made in
-- comparison [] what is compared, and over what it is averaged
-- unit [] of half_width and detectable: log ratio (.1 is 10 %), accuracy or rank correlation
-- half_width [] half the 95 % interval of the difference, median over all such comparisons
-- detectable [] half_width (1.96 + 0.84) / 1.96: found at the 5 % level, two-sided, with probability .8; of one comparison, uncorrected
-- n_compared [] comparisons behind the median
WITH half AS (
    SELECT 'forecast' AS stage, 'error of two architectures, one system and eta, over seeds' AS comparison, 'log ratio' AS unit,
        sqrt(2) * ln(high / low) / 2 AS half
    FROM forecast_cell
    UNION ALL
    SELECT 'forecast', 'error of an architecture and the best one, one eta, over systems and seeds', 'log ratio',
        ln((1 + high) / (1 + low)) / 2
    FROM gap
    UNION ALL
    SELECT 'alignment', 'mu with the advantage of one architecture, over systems and etas', 'rank correlation', (high - low) / 2
    FROM alignment
    UNION ALL
    SELECT 'benchmark', 'test accuracy of two architectures, one task, over test sequences and seeds', 'accuracy',
        sqrt(2) * (high - low) / 2
    FROM benchmark_cell
    UNION ALL
    SELECT 'curriculum', 'time to a target of a plan and plain training, over seeds', 'log ratio', ln(high / low) / 2
    FROM time_to_target WHERE status = 'ok'
    UNION ALL
    SELECT 'curriculum', 'final accuracy of a plan and plain training, over seeds', 'accuracy', (gain_high - gain_low) / 2
    FROM curriculum_final
)
SELECT stage, comparison, unit, median(half) AS half_width, median(half) * (1.96 + 0.84) / 1.96 AS detectable,
    count(*) AS n_compared
FROM half WHERE half IS NOT NULL
GROUP BY ALL
ORDER BY stage, comparison
