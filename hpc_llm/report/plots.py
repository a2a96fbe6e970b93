def write_plots(report, folder): return []
