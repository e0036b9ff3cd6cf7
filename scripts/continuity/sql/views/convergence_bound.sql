-- one model, method and input scale: proved bounds against measured errors, over random systems and steps
-- violations [] cases in which the error exceeds the bound by norms
-- violations_lognorm [] cases in which the error exceeds the bound by the logarithmic norm
-- violations_late [] cases in which the error read after the update, against either instant, exceeds its tightest bound
-- n_cases [] random systems x steps with a bound
-- slack_log10 [log10] median of log10(bound / error)
-- slack_lognorm_log10 [log10] median of log10(bound by the logarithmic norm / error)
SELECT model, method, scale, count(*) FILTER (log10(abs_linf) > bound_log10) AS violations,
    count(*) FILTER (log10(abs_linf) > bound_lognorm_log10) AS violations_lognorm,
    count(*) FILTER (greatest(margin_after_log10, margin_next_log10) > 0) AS violations_late, count(*) AS n_cases,
    median(bound_log10 - log10(abs_linf)) AS slack_log10,
    median(bound_lognorm_log10 - log10(abs_linf)) AS slack_lognorm_log10
FROM convergence
WHERE abs_linf > 0 AND bound_log10 IS NOT NULL
GROUP BY ALL
ORDER BY ALL
